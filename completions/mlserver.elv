
use builtin;
use str;

set edit:completion:arg-completer[mlserver] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'mlserver'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'mlserver'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand -V 'Print version'
            cand --version 'Print version'
            cand start 'Start serving the models of a folder'
            cand infer 'Have a server answer a file of requests, in its order'
            cand init 'Make a new project that serves, tests and builds at once'
            cand dockerfile 'Write a Dockerfile for a folder of models'
            cand build 'Build an image of a folder of models'
            cand manifest 'Print a manifest that runs an image of a folder'
            cand doctor 'Check what a folder needs to be served, and say what to do'
            cand config 'Inspect settings'
            cand inspect 'Print what an artifact or MLflow folder holds, and whether it is native'
            cand completions 'Print the completions of a shell'
            cand man 'Write the manual pages into a folder'
        }
        &'mlserver;start'= {
            cand --strict 'Refuse unknown keys in settings files'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;infer'= {
            cand -u 'Server, as HOST:PORT with an optional path [env: MLSERVER_INFER_URL] [default: localhost:8080, or localhost:8081 with --transport grpc]'
            cand --url 'Server, as HOST:PORT with an optional path [env: MLSERVER_INFER_URL] [default: localhost:8080, or localhost:8081 with --transport grpc]'
            cand --embedded 'Load the model of FOLDER in this process, and ask no server. The same happens without --url where --model-name is a folder with a `model-settings.json`'
            cand -m 'Model to ask; with --embedded, only where FOLDER holds several [env: MLSERVER_INFER_MODEL_NAME]'
            cand --model-name 'Model to ask; with --embedded, only where FOLDER holds several [env: MLSERVER_INFER_MODEL_NAME]'
            cand --model-version 'Version of the model, else the server chooses [env: MLSERVER_INFER_MODEL_VERSION]'
            cand -i 'File of requests or rows, `-` for standard input [env: MLSERVER_INFER_INPUT_DATA_PATH]'
            cand --input-data-path 'File of requests or rows, `-` for standard input [env: MLSERVER_INFER_INPUT_DATA_PATH]'
            cand --input-format 'What the input is: `requests` as JSON, `rows` as JSON objects whose keys are columns, or a table [env: MLSERVER_INFER_INPUT_FORMAT] [default: by extension: .ndjson is rows, .csv, .tsv, .npy and .parquet are tables, anything else requests]'
            cand --column-type 'Datatype of a column of csv, tsv or rows, which is else told from the first 1000 rows; may be repeated'
            cand -o 'File for the answers, a line each, `-` for standard output [env: MLSERVER_INFER_OUTPUT_DATA_PATH]'
            cand --output-data-path 'File for the answers, a line each, `-` for standard output [env: MLSERVER_INFER_OUTPUT_DATA_PATH]'
            cand -w 'Requests under way at the start [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, one more than there are cores]'
            cand --workers 'Requests under way at the start [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, one more than there are cores]'
            cand --max-workers 'Most requests under way, to which their number grows while that makes the run faster [env: MLSERVER_INFER_MAX_WORKERS] [default: --workers where it is given or with --embedded, else 64]'
            cand -r 'Attempts in total for a request that fails and may be answered another time [env: MLSERVER_INFER_RETRIES] [default: 3]'
            cand --retries 'Attempts in total for a request that fails and may be answered another time [env: MLSERVER_INFER_RETRIES] [default: 3]'
            cand -s 'Rows in a request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, with --embedded 1000]'
            cand --batch-size 'Rows in a request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, with --embedded 1000]'
            cand -t 'Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]'
            cand --transport 'Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]'
            cand -H 'Header of each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as `NAME:VALUE NAME:VALUE`]'
            cand --request-headers 'Header of each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as `NAME:VALUE NAME:VALUE`]'
            cand --timeout 'Seconds to wait for a connection, and for each answer [env: MLSERVER_INFER_CONNECTION_TIMEOUT] [default: 60]'
            cand --batch-interval 'Least seconds between the starts of two requests of one worker [env: MLSERVER_INFER_BATCH_INTERVAL] [default: 0]'
            cand --batch-jitter 'Most seconds that are added to --batch-interval at random [env: MLSERVER_INFER_BATCH_JITTER] [default: 0]'
            cand --rate 'Most rows to send in a second [env: MLSERVER_INFER_RATE]'
            cand --summary 'How to sum up the run: as text on standard error, or as one JSON object on standard output (standard error when the answers go to standard output)'
            cand --resume 'Go on behind the answers that an interrupted run has left in PATH.partial'
            cand -b 'Send tensors as bytes and not as text [env: MLSERVER_INFER_BINARY_DATA]'
            cand --binary-data 'Send tensors as bytes and not as text [env: MLSERVER_INFER_BINARY_DATA]'
            cand -v 'Tell of each request; twice (-vv), of what is sent and received, too [env: MLSERVER_INFER_VERBOSE]'
            cand --verbose 'Tell of each request; twice (-vv), of what is sent and received, too [env: MLSERVER_INFER_VERBOSE]'
            cand --extra-verbose 'The same as -vv [env: MLSERVER_INFER_EXTRA_VERBOSE]'
            cand --use-ssl 'Encrypt the connection [env: MLSERVER_INFER_USE_SSL]'
            cand --insecure 'Take any certificate of the server [env: MLSERVER_INFER_INSECURE]'
            cand --http2 'Speak HTTP/2 over REST without encryption, too, which the server must know [env: MLSERVER_INFER_HTTP2]'
            cand -q 'Show neither progress nor warnings nor a summary, only why it fails'
            cand --quiet 'Show neither progress nor warnings nor a summary, only why it fails'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mlserver;init'= {
            cand -t 'Name of a template, a folder, or an archive (.zip, .tar, .tar.gz)'
            cand --template 'Name of a template, a folder, or an archive (.zip, .tar, .tar.gz)'
            cand --name 'Name of the project and of its model [default: that of the folder, else `my-model`]'
            cand --list 'Print the names of the templates'
            cand --force 'Overwrite files that are there'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;dockerfile'= {
            cand --base 'Image to start from [default: none for native models, else one with Python]'
            cand --server 'Image to take the server from'
            cand -i 'Write a `Dockerfile.dockerignore`, too'
            cand --include-dockerignore 'Write a `Dockerfile.dockerignore`, too'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;build'= {
            cand -t 'Name of the image'
            cand --tag 'Name of the image'
            cand --base 'Image to start from [default: none for native models, else one with Python]'
            cand --server 'Image to take the server from [default: this executable]'
            cand --platform 'Platform of the image, such as `linux/arm64` [default: the engine''s]'
            cand --build-arg 'Value of an ARG of the Dockerfile; may be repeated'
            cand --network 'Network of the build''s commands and of the check [default: the engine''s]'
            cand --no-cache 'Run every step anew'
            cand --classic 'Use the classic builder, for engines without BuildKit'
            cand --check 'Start the image, load its models, and send each the `request.json` beside its settings'
            cand --push 'Send the image to the registry that its name leads to, after the check'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;manifest'= {
            cand --image 'Image to run'
            cand --kind 'Kind of the manifest'
            cand --name 'Name of what it makes [default: the folder''s]'
            cand --replicas 'How many copies run'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mlserver;doctor'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;config'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand show 'Print every effective setting and where it came from'
        }
        &'mlserver;config;show'= {
            cand --format 'Print lines of text or one JSON object'
            cand --strict 'Refuse unknown keys in settings files'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;inspect'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;completions'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;man'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
    ]
    $completions[$command]
}
