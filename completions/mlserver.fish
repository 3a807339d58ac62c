# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_mlserver_global_optspecs
    string join \n h/help V/version
end

function __fish_mlserver_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_mlserver_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_mlserver_using_subcommand
    set -l cmd (__fish_mlserver_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c mlserver -n "__fish_mlserver_needs_command" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_needs_command" -s V -l version -d 'Print version'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "start" -d 'Start serving the models of a folder'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "infer" -d 'Have a server answer a file of requests, in its order'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "init" -d 'Make a new project that serves, tests and builds at once'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "dockerfile" -d 'Write a Dockerfile for a folder of models'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "build" -d 'Build an image of a folder of models'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "manifest" -d 'Print a manifest that runs an image of a folder'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "doctor" -d 'Check what a folder needs to be served, and say what to do'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "config" -d 'Inspect settings'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "inspect" -d 'Print what an artifact or MLflow folder holds, and whether it is native'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "completions" -d 'Print the completions of a shell'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "man" -d 'Write the manual pages into a folder'
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l strict -d 'Refuse unknown keys in settings files'
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s u -l url -d 'Server, as HOST:PORT with an optional path [env: MLSERVER_INFER_URL] [default: localhost:8080, or localhost:8081 with --transport grpc]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l embedded -d 'Load the model of FOLDER in this process, and ask no server. The same happens without --url where --model-name is a folder with a `model-settings.json`' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s m -l model-name -d 'Model to ask; with --embedded, only where FOLDER holds several [env: MLSERVER_INFER_MODEL_NAME]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l model-version -d 'Version of the model, else the server chooses [env: MLSERVER_INFER_MODEL_VERSION]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s i -l input-data-path -d 'File of requests or rows, `-` for standard input [env: MLSERVER_INFER_INPUT_DATA_PATH]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l input-format -d 'What the input is: `requests` as JSON, `rows` as JSON objects whose keys are columns, or a table [env: MLSERVER_INFER_INPUT_FORMAT] [default: by extension: .ndjson is rows, .csv, .tsv, .npy and .parquet are tables, anything else requests]' -r -f -a "requests\t''
rows\t''
csv\t''
tsv\t''
npy\t''
parquet\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l column-type -d 'Datatype of a column of csv, tsv or rows, which is else told from the first 1000 rows; may be repeated' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s o -l output-data-path -d 'File for the answers, a line each, `-` for standard output [env: MLSERVER_INFER_OUTPUT_DATA_PATH]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s w -l workers -d 'Requests under way at the start [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, one more than there are cores]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l max-workers -d 'Most requests under way, to which their number grows while that makes the run faster [env: MLSERVER_INFER_MAX_WORKERS] [default: --workers where it is given or with --embedded, else 64]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s r -l retries -d 'Attempts in total for a request that fails and may be answered another time [env: MLSERVER_INFER_RETRIES] [default: 3]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s s -l batch-size -d 'Rows in a request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, with --embedded 1000]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s t -l transport -d 'Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]' -r -f -a "rest\t''
grpc\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s H -l request-headers -d 'Header of each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as `NAME:VALUE NAME:VALUE`]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l timeout -d 'Seconds to wait for a connection, and for each answer [env: MLSERVER_INFER_CONNECTION_TIMEOUT] [default: 60]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l batch-interval -d 'Least seconds between the starts of two requests of one worker [env: MLSERVER_INFER_BATCH_INTERVAL] [default: 0]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l batch-jitter -d 'Most seconds that are added to --batch-interval at random [env: MLSERVER_INFER_BATCH_JITTER] [default: 0]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l rate -d 'Most rows to send in a second [env: MLSERVER_INFER_RATE]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l summary -d 'How to sum up the run: as text on standard error, or as one JSON object on standard output (standard error when the answers go to standard output)' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l resume -d 'Go on behind the answers that an interrupted run has left in PATH.partial'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s b -l binary-data -d 'Send tensors as bytes and not as text [env: MLSERVER_INFER_BINARY_DATA]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s v -l verbose -d 'Tell of each request; twice (-vv), of what is sent and received, too [env: MLSERVER_INFER_VERBOSE]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l extra-verbose -d 'The same as -vv [env: MLSERVER_INFER_EXTRA_VERBOSE]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l use-ssl -d 'Encrypt the connection [env: MLSERVER_INFER_USE_SSL]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l insecure -d 'Take any certificate of the server [env: MLSERVER_INFER_INSECURE]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l http2 -d 'Speak HTTP/2 over REST without encryption, too, which the server must know [env: MLSERVER_INFER_HTTP2]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s q -l quiet -d 'Show neither progress nor warnings nor a summary, only why it fails'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -s t -l template -d 'Name of a template, a folder, or an archive (.zip, .tar, .tar.gz)' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -l name -d 'Name of the project and of its model [default: that of the folder, else `my-model`]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -l list -d 'Print the names of the templates'
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -l force -d 'Overwrite files that are there'
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -l base -d 'Image to start from [default: none for native models, else one with Python]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -l server -d 'Image to take the server from' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -s i -l include-dockerignore -d 'Write a `Dockerfile.dockerignore`, too'
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -s t -l tag -d 'Name of the image' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l base -d 'Image to start from [default: none for native models, else one with Python]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l server -d 'Image to take the server from [default: this executable]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l platform -d 'Platform of the image, such as `linux/arm64` [default: the engine\'s]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l build-arg -d 'Value of an ARG of the Dockerfile; may be repeated' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l network -d 'Network of the build\'s commands and of the check [default: the engine\'s]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l no-cache -d 'Run every step anew'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l classic -d 'Use the classic builder, for engines without BuildKit'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l check -d 'Start the image, load its models, and send each the `request.json` beside its settings'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l push -d 'Send the image to the registry that its name leads to, after the check'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l image -d 'Image to run' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l kind -d 'Kind of the manifest' -r -f -a "kubernetes\t'Deployment and Service of plain Kubernetes'
kserve\t'InferenceService of KServe'
seldon\t'SeldonDeployment of Seldon Core 1'"
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l name -d 'Name of what it makes [default: the folder\'s]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l replicas -d 'How many copies run' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and not __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and not __fish_seen_subcommand_from show" -f -a "show" -d 'Print every effective setting and where it came from'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l format -d 'Print lines of text or one JSON object' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l strict -d 'Refuse unknown keys in settings files'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand inspect" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand completions" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand man" -s h -l help -d 'Print help'
