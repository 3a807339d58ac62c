# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_mlserver_global_optspecs
    string join \n color= h/help V/version
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

complete -c mlserver -n "__fish_mlserver_needs_command" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_needs_command" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_needs_command" -s V -l version -d 'Print version'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "start" -d 'Serve the models of a folder or a KServe script, or a model file'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "serve" -d 'Serve the models of a folder or a KServe script, or a model file'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "infer" -d 'Run batch inference over a file or a Kafka topic'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "compare" -d 'Send the same requests to two servers, and report the rows whose answers differ'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "init" -d 'Create a project that is ready to serve, test and build'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "pull" -d 'Fetch models from object stores into folders'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "dockerfile" -d 'Write a Dockerfile for a model folder'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "build" -d 'Build a container image of a model folder'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "manifest" -d 'Print a Kubernetes manifest for an image'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "doctor" -d 'Diagnose a folder or model file before serving it'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "config" -d 'Inspect settings'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "inspect" -d 'Show what a model file contains, and whether it is served natively'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "keys" -d 'Create, list and revoke API keys'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "graph" -d 'Inspect inference graphs'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "completions" -d 'Print shell completions'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "man" -d 'Write the manual pages to a folder'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l port-file -d 'Write the server\'s addresses to FILE as JSON, once the models are loaded' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l model-name -d 'Name of a model without `model-settings.json`: of the model file, or of the only model in the folder [default: the value of `MLSERVER_MODEL_NAME`]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l settings -d 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l set -d 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l host -d 'Address to listen on, like `--set host=ADDRESS`' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l http-port -d 'Port of the REST server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l grpc-port -d 'Port of the gRPC server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l metrics-port -d 'Port of the metrics server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l log-level -d 'Lowest severity of log lines to write' -r -f -a "debug\t''
info\t''
warning\t''
error\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l parallel-workers -d 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l strict -d 'Reject unknown keys in settings files'
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l allow-empty -d 'Start even if the folder has no models'
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l debug -d 'Log at debug level, including an access log'
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l no-debug -d 'Do not log at debug level, even if the settings do'
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l port-file -d 'Write the server\'s addresses to FILE as JSON, once the models are loaded' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l model-name -d 'Name of a model without `model-settings.json`: of the model file, or of the only model in the folder [default: the value of `MLSERVER_MODEL_NAME`]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l settings -d 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l set -d 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l host -d 'Address to listen on, like `--set host=ADDRESS`' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l http-port -d 'Port of the REST server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l grpc-port -d 'Port of the gRPC server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l metrics-port -d 'Port of the metrics server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l log-level -d 'Lowest severity of log lines to write' -r -f -a "debug\t''
info\t''
warning\t''
error\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l parallel-workers -d 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l strict -d 'Reject unknown keys in settings files'
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l allow-empty -d 'Start even if the folder has no models'
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l debug -d 'Log at debug level, including an access log'
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -l no-debug -d 'Do not log at debug level, even if the settings do'
complete -c mlserver -n "__fish_mlserver_using_subcommand serve" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s i -l input-data-path -d 'Input file, `-` for standard input, kafka://HOST:PORT/TOPIC, or a URI of objects, such as `s3://BUCKET/in/part-*.parquet`; may be repeated [env: MLSERVER_INFER_INPUT_DATA_PATH]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l input-format -d 'Input format: `requests` (JSON Lines of requests), `openai` (a batch file of OpenAI\'s API), `rows` (JSON Lines of objects whose keys are columns), or a table; `orc` and `catalog` (tables by name) need --engine [env: MLSERVER_INFER_INPUT_FORMAT] [default: by extension: .ndjson is rows; .csv, .tsv, .npy and .parquet are tables; anything else is requests, or openai if its first line is one]' -r -f -a "requests\t''
openai\t''
rows\t''
csv\t''
tsv\t''
npy\t''
parquet\t''
orc\t''
catalog\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l column-type -d 'Datatype of a column of csv, tsv or rows; may be repeated [default: inferred from the first 1000 rows]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l outputs -d 'Outputs to request for rows and tables, separated by commas [default: chosen by the model]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s o -l output-data-path -d 'Output file or object, `-` for standard output, kafka://HOST:PORT/TOPIC, or a folder for the answers to each input, with `/` at its end; .csv, .tsv, .parquet and .pq get columns, anything else JSON Lines [env: MLSERVER_INFER_OUTPUT_DATA_PATH]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l engine -d 'Run the job on a cluster: `spark` runs spark-submit of SPARK_HOME or PATH, `ray` runs `ray job submit`; the output is a folder of Parquet' -r -f -a "spark\t''
ray\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l engine-arg -d 'Argument for spark-submit or `ray job submit`, such as `--engine-arg=--master=yarn`; may be repeated' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l keep -d 'Columns that the output keeps, separated by commas [default: all]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l columns -d 'Columns of the model\'s features in their order, separated by commas [default: by the names of the features]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l partition-by -d 'Columns whose values name the folders of the output, separated by commas' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l kafka-group -d 'Consumer group of the input topic: a run continues after the offsets that it has committed [env: MLSERVER_INFER_KAFKA_GROUP] [default: mlserver-infer]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l kafka-config -d 'librdkafka property for the input and the output topic, such as `security.protocol=sasl_ssl`; may be repeated [env: MLSERVER_INFER_KAFKA_CONFIG, as a JSON object]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s u -l url -d 'Server address, as HOST:PORT with an optional path; for a batch of OpenAI\'s API, /openai is tried if there is none [env: MLSERVER_INFER_URL] [default: localhost:8080, or localhost:8081 with --transport grpc]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l embedded -d 'Load the model of FOLDER, which may be a URI of an object store, or a model file, in this process instead of using a server' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s m -l model-name -d 'Model name; only needed if the server, or FOLDER of --embedded, has several models; overrides the models that a batch of OpenAI\'s API names; with --engine, the folder, file or URI of the model [env: MLSERVER_INFER_MODEL_NAME]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l model-version -d 'Model version [env: MLSERVER_INFER_MODEL_VERSION] [default: chosen by the server]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s t -l transport -d 'Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]' -r -f -a "rest\t''
grpc\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s H -l request-headers -d 'Header to send with each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as `NAME:VALUE NAME:VALUE`]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l token -d 'API key or token, sent as `authorization: Bearer TOKEN`; use the variable to hide it from lists of processes [env: MLSERVER_INFER_TOKEN]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l timeout -d 'Timeout in seconds for connecting and for each response [env: MLSERVER_INFER_CONNECTION_TIMEOUT] [default: 60]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l ca -d 'Trust the root certificates in this PEM file, in addition to those of the system [env: MLSERVER_INFER_CA]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l cert -d 'Present the client certificate in this PEM file, which may also contain its key [env: MLSERVER_INFER_CERT]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l key -d 'Private key of --cert, as a PEM file [env: MLSERVER_INFER_KEY]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s w -l workers -d 'Initial number of requests in flight [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, the number of cores plus one]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l max-workers -d 'Maximum number of requests in flight; concurrency grows while throughput improves [env: MLSERVER_INFER_MAX_WORKERS] [default: --workers if it is set or with --embedded, otherwise 64]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s s -l batch-size -d 'Rows per request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, or 1000 with --embedded]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s r -l retries -d 'Maximum attempts per request; only failures that may be temporary are retried [env: MLSERVER_INFER_RETRIES] [default: 3]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l batch-interval -d 'Minimum seconds between requests per worker [env: MLSERVER_INFER_BATCH_INTERVAL] [default: 0]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l batch-jitter -d 'Maximum random seconds added to --batch-interval [env: MLSERVER_INFER_BATCH_JITTER] [default: 0]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l rate -d 'Maximum rows per second [env: MLSERVER_INFER_RATE] [default: unlimited]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l summary -d 'Summary format: text on standard error, or one JSON object on standard output (on standard error if the answers go to standard output)' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l resume -d 'Resume an interrupted run from PATH.partial, or continue a complete PATH of JSON Lines if the input has more rows; a run that reads a topic always resumes; with --engine, score the input files that the column `source_file` of the output does not name'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l overwrite -d 'Replace an existing output'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l dry-run -d 'Print the command of the engine instead of running it'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s b -l binary-data -d 'Send tensors as binary data instead of JSON [env: MLSERVER_INFER_BINARY_DATA]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l no-binary-data -d 'Send tensors as JSON'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l use-ssl -d 'Use TLS [env: MLSERVER_INFER_USE_SSL]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l no-use-ssl -d 'Use TLS only if the address has the scheme `https`'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l insecure -d 'Skip TLS certificate verification [env: MLSERVER_INFER_INSECURE]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l no-insecure -d 'Verify TLS certificates'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l http2 -d 'Use HTTP/2 for REST even without TLS; the server must support it [env: MLSERVER_INFER_HTTP2]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l no-http2 -d 'Use HTTP/2 for REST only over TLS'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s v -l verbose -d 'Log retries and split requests (-v) or full traffic (-vv, --extra-verbose) [env: MLSERVER_INFER_VERBOSE, MLSERVER_INFER_EXTRA_VERBOSE]'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l extra-verbose -d 'Log full traffic, like -vv'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -l no-verbose -d 'Do not log requests'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s q -l quiet -d 'Suppress progress, warnings and summary; only report why the run failed'
complete -c mlserver -n "__fish_mlserver_using_subcommand infer" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l input-format -d 'Input format: `requests` (JSON Lines of requests), `rows` (JSON Lines of objects whose keys are columns), or a table [default: by extension]' -r -f -a "requests\t''
openai\t''
rows\t''
csv\t''
tsv\t''
npy\t''
parquet\t''
orc\t''
catalog\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l column-type -d 'Datatype of a column of csv, tsv or rows; may be repeated [default: inferred from the first 1000 rows]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s u -l url -d 'Server address, as HOST:PORT with an optional path; given twice' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s m -l model-name -d 'Model name on both servers' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l model-version -d 'Model version on both servers' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s t -l transport -d 'Protocol [default: rest]' -r -f -a "rest\t''
grpc\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s H -l request-headers -d 'Header to send with each request, as `NAME: VALUE`; may be repeated' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l token -d 'API key or token, sent to both servers as `authorization: Bearer TOKEN`' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l timeout -d 'Timeout in seconds for connecting and for each response [default: 60]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l ca -d 'Trust the root certificates in this PEM file, in addition to those of the system' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l cert -d 'Present the client certificate in this PEM file, which may also contain its key' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l key -d 'Private key of --cert, as a PEM file' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l absolute-tolerance -d 'Largest absolute difference between floating-point numbers that count as equal' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l relative-tolerance -d 'Largest difference between floating-point numbers that count as equal, as a fraction of the larger one; added to --absolute-tolerance' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s w -l workers -d 'Number of requests in flight at each server [default: 10]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s s -l batch-size -d 'Rows per request; a request whose answers differ is split to find the rows [default: 1; for rows and tables 100]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s r -l retries -d 'Maximum attempts per request; only failures that may be temporary are retried [default: 3]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l summary -d 'Summary format: text or one JSON object, on standard error' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s b -l binary-data -d 'Send tensors as binary data instead of JSON'
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -l insecure -d 'Skip TLS certificate verification'
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s v -l verbose -d 'Log each request (-v) or full traffic (-vv)'
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s q -l quiet -d 'Suppress progress, warnings and summary; only report why the run failed'
complete -c mlserver -n "__fish_mlserver_using_subcommand compare" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -s t -l template -d 'Name of a template, a folder, or an archive (.zip, .tar, .tar.gz) or its URL' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -l from -d 'Create a project from a copy of a model file, instead of a template' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -l name -d 'Name of the project and its model [default: the folder\'s name, or `my-model`]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -l format -d 'Output format of --list' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -l list -d 'List the templates'
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -l dockerfile -d 'Also write a Dockerfile and a `.dockerignore` file, as `mlserver dockerfile --include-dockerignore` does'
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -l force -d 'Overwrite existing files'
complete -c mlserver -n "__fish_mlserver_using_subcommand init" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand pull" -l include -d 'Pattern of the files to fetch, with `*` for any text; may be repeated [default: all]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand pull" -l exclude -d 'Pattern of files not to fetch; may be repeated' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand pull" -l concurrency -d 'Number of files to fetch at once [default: the setting `storage_concurrency`]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand pull" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand pull" -l list -d 'List the files instead of fetching them; takes URIs without folders'
complete -c mlserver -n "__fish_mlserver_using_subcommand pull" -l lock -d 'Write the sizes and SHA-256 hashes of the files into `mlserver.lock`; later runs, and the server, refuse other files'
complete -c mlserver -n "__fish_mlserver_using_subcommand pull" -s q -l quiet -d 'Show no progress'
complete -c mlserver -n "__fish_mlserver_using_subcommand pull" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -s o -l output -d 'File to write, or `-` for standard output [default: `Dockerfile` in the folder]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -l base -d 'Base image [default: none for native models, otherwise one with Python]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -l python -d 'Version of Python of the default base image, such as 3.10 [default: that of the project, otherwise 3.12]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -l server -d 'Image to copy the server from' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -s i -l include-dockerignore -d 'Also write a `.dockerignore` file: in the folder, or with --output next to FILE as `FILE.dockerignore`'
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -l force -d 'Replace files that were not generated by this command'
complete -c mlserver -n "__fish_mlserver_using_subcommand dockerfile" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -s t -l tag -d 'Name of the image; for base images, their name without a version' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l base -d 'Base image [default: none for native models, otherwise one with Python]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l python -d 'Version of Python of the default base image, such as 3.10 [default: that of the project, otherwise 3.12]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l server -d 'Image to copy the server from [default: this executable]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l platform -d 'Platform of the image, such as `linux/arm64` [default: that of the engine]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l base-images -d 'Build the images that Dockerfiles and manifests start from: `all`, only the `slim` one, which has no Python, or that and the `python` one, which has no frameworks' -r -f -a "all\t''
slim\t''
python\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l requirements -d 'Packages of the base image with frameworks [default: pinned versions of the frameworks]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l build-arg -d 'Build argument for the Dockerfile; may be repeated' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l network -d 'Network for the build and the check [default: that of the engine]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l format -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l offline-models -d 'Put the models of object stores into the image, instead of fetching them in each container'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l no-cache -d 'Do not use the build cache'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l classic -d 'Use the classic builder, for engines without BuildKit'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l check -d 'Run the image and send each model the `request.json` next to its settings'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -l push -d 'Push the image to its registry, after the check'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -s q -l quiet -d 'Report only warnings and errors'
complete -c mlserver -n "__fish_mlserver_using_subcommand build" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l image -d 'Image to run' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l kind -d 'Type of manifest' -r -f -a "kubernetes\t'Plain Kubernetes: Deployment and Service'
kserve\t'KServe: InferenceService'
seldon\t'Seldon Core 1: SeldonDeployment'"
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l name -d 'Name of the resources [default: derived from the folder\'s name]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l replicas -d 'Number of replicas' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l cpu -d 'CPUs to request, such as `2` or `500m`' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l memory -d 'Memory to request, which is also the limit' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand manifest" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l format -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l settings -d 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l set -d 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l host -d 'Address to listen on, like `--set host=ADDRESS`' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l http-port -d 'Port of the REST server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l grpc-port -d 'Port of the gRPC server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l metrics-port -d 'Port of the metrics server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l log-level -d 'Lowest severity of log lines to write' -r -f -a "debug\t''
info\t''
warning\t''
error\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l parallel-workers -d 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l image -d 'Also check that images can be built'
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l debug -d 'Log at debug level, including an access log'
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -l no-debug -d 'Do not log at debug level, even if the settings do'
complete -c mlserver -n "__fish_mlserver_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and not __fish_seen_subcommand_from show list explain help" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and not __fish_seen_subcommand_from show list explain help" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and not __fish_seen_subcommand_from show list explain help" -f -a "show" -d 'Print every effective setting and its source'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and not __fish_seen_subcommand_from show list explain help" -f -a "list" -d 'List all settings with their types, defaults and environment variables'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and not __fish_seen_subcommand_from show list explain help" -f -a "explain" -d 'Explain one setting'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and not __fish_seen_subcommand_from show list explain help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l settings -d 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l set -d 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l host -d 'Address to listen on, like `--set host=ADDRESS`' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l http-port -d 'Port of the REST server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l grpc-port -d 'Port of the gRPC server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l metrics-port -d 'Port of the metrics server; 0 means any free port' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l log-level -d 'Lowest severity of log lines to write' -r -f -a "debug\t''
info\t''
warning\t''
error\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l parallel-workers -d 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l format -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l strict -d 'Reject unknown keys in settings files'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l debug -d 'Log at debug level, including an access log'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -l no-debug -d 'Do not log at debug level, even if the settings do'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from list" -l format -d 'Output format' -r -f -a "text\t''
json\t''
markdown\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from list" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from explain" -l format -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from explain" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "show" -d 'Print every effective setting and its source'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "list" -d 'List all settings with their types, defaults and environment variables'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "explain" -d 'Explain one setting'
complete -c mlserver -n "__fish_mlserver_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mlserver -n "__fish_mlserver_using_subcommand inspect" -l format -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand inspect" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand inspect" -l example -d 'Print only an example request that the model answers'
complete -c mlserver -n "__fish_mlserver_using_subcommand inspect" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and not __fish_seen_subcommand_from create list revoke help" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and not __fish_seen_subcommand_from create list revoke help" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and not __fish_seen_subcommand_from create list revoke help" -f -a "create" -d 'Create a key and print it once; the file stores only its hash'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and not __fish_seen_subcommand_from create list revoke help" -f -a "list" -d 'List the keys of a file'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and not __fish_seen_subcommand_from create list revoke help" -f -a "revoke" -d 'Remove a key from its file; running servers reject it within 10 seconds'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and not __fish_seen_subcommand_from create list revoke help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -l name -d 'Name of the key, for logs and metrics' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -l scope -d 'Scope of the key; may be repeated' -r -f -a "infer\t'Predict: `infer`, streams, V1, custom routes'
read\t'Read metadata of the server and its models, the index and documents'
admin\t'Load and unload models'
metrics\t'Scrape metrics'"
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -l models -d 'Pattern of the models that the key may use, with `*` for any text; may be repeated [default: all]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -l expires -d 'Expiry time of the key, such as `2030-01-31T00:00:00Z`' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -l requests-per-second -d 'Maximum requests per second' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -l burst -d 'Maximum burst of requests [default: the requests of one second]' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -l max-in-flight -d 'Maximum requests in flight' -r
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -l file -d 'Key file [default: the setting `api_keys_file`]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -l folder -d 'Folder whose settings name the file' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from list" -l file -d 'Key file [default: the setting `api_keys_file`]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from list" -l folder -d 'Folder whose settings name the file' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from list" -l format -d 'Output format' -r -f -a "text\t''
json\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from list" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from revoke" -l file -d 'Key file [default: the setting `api_keys_file`]' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from revoke" -l folder -d 'Folder whose settings name the file' -r -F
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from revoke" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from help" -f -a "create" -d 'Create a key and print it once; the file stores only its hash'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the keys of a file'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from help" -f -a "revoke" -d 'Remove a key from its file; running servers reject it within 10 seconds'
complete -c mlserver -n "__fish_mlserver_using_subcommand keys; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mlserver -n "__fish_mlserver_using_subcommand graph; and not __fish_seen_subcommand_from show help" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand graph; and not __fish_seen_subcommand_from show help" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand graph; and not __fish_seen_subcommand_from show help" -f -a "show" -d 'Print the steps of inference graphs, their dependencies, and missing models'
complete -c mlserver -n "__fish_mlserver_using_subcommand graph; and not __fish_seen_subcommand_from show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mlserver -n "__fish_mlserver_using_subcommand graph; and __fish_seen_subcommand_from show" -l format -d 'Output format' -r -f -a "text\t''
json\t''
mermaid\t'A flowchart in Mermaid\'s language, which GitHub and many editors draw'"
complete -c mlserver -n "__fish_mlserver_using_subcommand graph; and __fish_seen_subcommand_from show" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand graph; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mlserver -n "__fish_mlserver_using_subcommand graph; and __fish_seen_subcommand_from help" -f -a "show" -d 'Print the steps of inference graphs, their dependencies, and missing models'
complete -c mlserver -n "__fish_mlserver_using_subcommand graph; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mlserver -n "__fish_mlserver_using_subcommand completions" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand completions" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand man" -l color -d 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mlserver -n "__fish_mlserver_using_subcommand man" -s h -l help -d 'Print help'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "start" -d 'Serve the models of a folder or a KServe script, or a model file'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "infer" -d 'Run batch inference over a file or a Kafka topic'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "compare" -d 'Send the same requests to two servers, and report the rows whose answers differ'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "init" -d 'Create a project that is ready to serve, test and build'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "pull" -d 'Fetch models from object stores into folders'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "dockerfile" -d 'Write a Dockerfile for a model folder'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "build" -d 'Build a container image of a model folder'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "manifest" -d 'Print a Kubernetes manifest for an image'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "doctor" -d 'Diagnose a folder or model file before serving it'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "config" -d 'Inspect settings'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "inspect" -d 'Show what a model file contains, and whether it is served natively'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "keys" -d 'Create, list and revoke API keys'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "graph" -d 'Inspect inference graphs'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "completions" -d 'Print shell completions'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "man" -d 'Write the manual pages to a folder'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and not __fish_seen_subcommand_from start infer compare init pull dockerfile build manifest doctor config inspect keys graph completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "show" -d 'Print every effective setting and its source'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "list" -d 'List all settings with their types, defaults and environment variables'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "explain" -d 'Explain one setting'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and __fish_seen_subcommand_from keys" -f -a "create" -d 'Create a key and print it once; the file stores only its hash'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and __fish_seen_subcommand_from keys" -f -a "list" -d 'List the keys of a file'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and __fish_seen_subcommand_from keys" -f -a "revoke" -d 'Remove a key from its file; running servers reject it within 10 seconds'
complete -c mlserver -n "__fish_mlserver_using_subcommand help; and __fish_seen_subcommand_from graph" -f -a "show" -d 'Print the steps of inference graphs, their dependencies, and missing models'
