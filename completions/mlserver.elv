
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
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help'
            cand --help 'Print help'
            cand -V 'Print version'
            cand --version 'Print version'
            cand start 'Serve the models of a folder or a KServe script, or a model file'
            cand serve 'Serve the models of a folder or a KServe script, or a model file'
            cand infer 'Run batch inference over a file or a Kafka topic'
            cand compare 'Send the same requests to two servers, and report the rows whose answers differ'
            cand init 'Create a project that is ready to serve, test and build'
            cand pull 'Fetch models from object stores into folders'
            cand dockerfile 'Write a Dockerfile for a model folder'
            cand build 'Build a container image of a model folder'
            cand manifest 'Print a Kubernetes manifest for an image'
            cand doctor 'Diagnose a folder or model file before serving it'
            cand config 'Inspect settings'
            cand inspect 'Show what a model file contains, and whether it is served natively'
            cand keys 'Create, list and revoke API keys'
            cand graph 'Inspect inference graphs'
            cand completions 'Print shell completions'
            cand man 'Write the manual pages to a folder'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mlserver;start'= {
            cand --port-file 'Write the server''s addresses to FILE as JSON, once the models are loaded'
            cand --model-name 'Name of a model without `model-settings.json`: of the model file, or of the only model in the folder [default: the value of `MLSERVER_MODEL_NAME`]'
            cand --settings 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports'
            cand --set 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings'
            cand --host 'Address to listen on, like `--set host=ADDRESS`'
            cand --http-port 'Port of the REST server; 0 means any free port'
            cand --grpc-port 'Port of the gRPC server; 0 means any free port'
            cand --metrics-port 'Port of the metrics server; 0 means any free port'
            cand --log-level 'Lowest severity of log lines to write'
            cand --parallel-workers 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand --strict 'Reject unknown keys in settings files'
            cand --allow-empty 'Start even if the folder has no models'
            cand --debug 'Log at debug level, including an access log'
            cand --no-debug 'Do not log at debug level, even if the settings do'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;serve'= {
            cand --port-file 'Write the server''s addresses to FILE as JSON, once the models are loaded'
            cand --model-name 'Name of a model without `model-settings.json`: of the model file, or of the only model in the folder [default: the value of `MLSERVER_MODEL_NAME`]'
            cand --settings 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports'
            cand --set 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings'
            cand --host 'Address to listen on, like `--set host=ADDRESS`'
            cand --http-port 'Port of the REST server; 0 means any free port'
            cand --grpc-port 'Port of the gRPC server; 0 means any free port'
            cand --metrics-port 'Port of the metrics server; 0 means any free port'
            cand --log-level 'Lowest severity of log lines to write'
            cand --parallel-workers 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand --strict 'Reject unknown keys in settings files'
            cand --allow-empty 'Start even if the folder has no models'
            cand --debug 'Log at debug level, including an access log'
            cand --no-debug 'Do not log at debug level, even if the settings do'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;infer'= {
            cand -i 'Input file, `-` for standard input, kafka://HOST:PORT/TOPIC, or a URI of objects, such as `s3://BUCKET/in/part-*.parquet`; may be repeated [env: MLSERVER_INFER_INPUT_DATA_PATH]'
            cand --input-data-path 'Input file, `-` for standard input, kafka://HOST:PORT/TOPIC, or a URI of objects, such as `s3://BUCKET/in/part-*.parquet`; may be repeated [env: MLSERVER_INFER_INPUT_DATA_PATH]'
            cand --input-format 'Input format: `requests` (JSON Lines of requests), `openai` (a batch file of OpenAI''s API), `rows` (JSON Lines of objects whose keys are columns), or a table; `orc` and `catalog` (tables by name) need --engine [env: MLSERVER_INFER_INPUT_FORMAT] [default: by extension: .ndjson is rows; .csv, .tsv, .npy and .parquet are tables; anything else is requests, or openai if its first line is one]'
            cand --column-type 'Datatype of a column of csv, tsv or rows; may be repeated [default: inferred from the first 1000 rows]'
            cand --outputs 'Outputs to request for rows and tables, separated by commas [default: chosen by the model]'
            cand -o 'Output file or object, `-` for standard output, kafka://HOST:PORT/TOPIC, or a folder for the answers to each input, with `/` at its end; .csv, .tsv, .parquet and .pq get columns, anything else JSON Lines [env: MLSERVER_INFER_OUTPUT_DATA_PATH]'
            cand --output-data-path 'Output file or object, `-` for standard output, kafka://HOST:PORT/TOPIC, or a folder for the answers to each input, with `/` at its end; .csv, .tsv, .parquet and .pq get columns, anything else JSON Lines [env: MLSERVER_INFER_OUTPUT_DATA_PATH]'
            cand --engine 'Run the job on a cluster: `spark` runs spark-submit of SPARK_HOME or PATH, `ray` runs `ray job submit`; the output is a folder of Parquet'
            cand --engine-arg 'Argument for spark-submit or `ray job submit`, such as `--engine-arg=--master=yarn`; may be repeated'
            cand --keep 'Columns that the output keeps, separated by commas [default: all]'
            cand --columns 'Columns of the model''s features in their order, separated by commas [default: by the names of the features]'
            cand --partition-by 'Columns whose values name the folders of the output, separated by commas'
            cand --kafka-group 'Consumer group of the input topic: a run continues after the offsets that it has committed [env: MLSERVER_INFER_KAFKA_GROUP] [default: mlserver-infer]'
            cand --kafka-config 'librdkafka property for the input and the output topic, such as `security.protocol=sasl_ssl`; may be repeated [env: MLSERVER_INFER_KAFKA_CONFIG, as a JSON object]'
            cand -u 'Server address, as HOST:PORT with an optional path; for a batch of OpenAI''s API, /openai is tried if there is none [env: MLSERVER_INFER_URL] [default: localhost:8080, or localhost:8081 with --transport grpc]'
            cand --url 'Server address, as HOST:PORT with an optional path; for a batch of OpenAI''s API, /openai is tried if there is none [env: MLSERVER_INFER_URL] [default: localhost:8080, or localhost:8081 with --transport grpc]'
            cand --embedded 'Load the model of FOLDER, which may be a URI of an object store, or a model file, in this process instead of using a server'
            cand -m 'Model name; only needed if the server, or FOLDER of --embedded, has several models; overrides the models that a batch of OpenAI''s API names; with --engine, the folder, file or URI of the model [env: MLSERVER_INFER_MODEL_NAME]'
            cand --model-name 'Model name; only needed if the server, or FOLDER of --embedded, has several models; overrides the models that a batch of OpenAI''s API names; with --engine, the folder, file or URI of the model [env: MLSERVER_INFER_MODEL_NAME]'
            cand --model-version 'Model version [env: MLSERVER_INFER_MODEL_VERSION] [default: chosen by the server]'
            cand -t 'Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]'
            cand --transport 'Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]'
            cand -H 'Header to send with each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as `NAME:VALUE NAME:VALUE`]'
            cand --request-headers 'Header to send with each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as `NAME:VALUE NAME:VALUE`]'
            cand --token 'API key or token, sent as `authorization: Bearer TOKEN`; use the variable to hide it from lists of processes [env: MLSERVER_INFER_TOKEN]'
            cand --timeout 'Timeout in seconds for connecting and for each response [env: MLSERVER_INFER_CONNECTION_TIMEOUT] [default: 60]'
            cand --ca 'Trust the root certificates in this PEM file, in addition to those of the system [env: MLSERVER_INFER_CA]'
            cand --cert 'Present the client certificate in this PEM file, which may also contain its key [env: MLSERVER_INFER_CERT]'
            cand --key 'Private key of --cert, as a PEM file [env: MLSERVER_INFER_KEY]'
            cand -w 'Initial number of requests in flight [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, the number of cores plus one]'
            cand --workers 'Initial number of requests in flight [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, the number of cores plus one]'
            cand --max-workers 'Maximum number of requests in flight; concurrency grows while throughput improves [env: MLSERVER_INFER_MAX_WORKERS] [default: --workers if it is set or with --embedded, otherwise 64]'
            cand -s 'Rows per request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, or 1000 with --embedded]'
            cand --batch-size 'Rows per request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, or 1000 with --embedded]'
            cand -r 'Maximum attempts per request; only failures that may be temporary are retried [env: MLSERVER_INFER_RETRIES] [default: 3]'
            cand --retries 'Maximum attempts per request; only failures that may be temporary are retried [env: MLSERVER_INFER_RETRIES] [default: 3]'
            cand --batch-interval 'Minimum seconds between requests per worker [env: MLSERVER_INFER_BATCH_INTERVAL] [default: 0]'
            cand --batch-jitter 'Maximum random seconds added to --batch-interval [env: MLSERVER_INFER_BATCH_JITTER] [default: 0]'
            cand --rate 'Maximum rows per second [env: MLSERVER_INFER_RATE] [default: unlimited]'
            cand --summary 'Summary format: text on standard error, or one JSON object on standard output (on standard error if the answers go to standard output)'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand --resume 'Resume an interrupted run from PATH.partial, or continue a complete PATH of JSON Lines if the input has more rows; a run that reads a topic always resumes; with --engine, score the input files that the column `source_file` of the output does not name'
            cand --overwrite 'Replace an existing output'
            cand --dry-run 'Print the command of the engine instead of running it'
            cand -b 'Send tensors as binary data instead of JSON [env: MLSERVER_INFER_BINARY_DATA]'
            cand --binary-data 'Send tensors as binary data instead of JSON [env: MLSERVER_INFER_BINARY_DATA]'
            cand --no-binary-data 'Send tensors as JSON'
            cand --use-ssl 'Use TLS [env: MLSERVER_INFER_USE_SSL]'
            cand --no-use-ssl 'Use TLS only if the address has the scheme `https`'
            cand --insecure 'Skip TLS certificate verification [env: MLSERVER_INFER_INSECURE]'
            cand --no-insecure 'Verify TLS certificates'
            cand --http2 'Use HTTP/2 for REST even without TLS; the server must support it [env: MLSERVER_INFER_HTTP2]'
            cand --no-http2 'Use HTTP/2 for REST only over TLS'
            cand -v 'Log retries and split requests (-v) or full traffic (-vv, --extra-verbose) [env: MLSERVER_INFER_VERBOSE, MLSERVER_INFER_EXTRA_VERBOSE]'
            cand --verbose 'Log retries and split requests (-v) or full traffic (-vv, --extra-verbose) [env: MLSERVER_INFER_VERBOSE, MLSERVER_INFER_EXTRA_VERBOSE]'
            cand --extra-verbose 'Log full traffic, like -vv'
            cand --no-verbose 'Do not log requests'
            cand -q 'Suppress progress, warnings and summary; only report why the run failed'
            cand --quiet 'Suppress progress, warnings and summary; only report why the run failed'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mlserver;compare'= {
            cand --input-format 'Input format: `requests` (JSON Lines of requests), `rows` (JSON Lines of objects whose keys are columns), or a table [default: by extension]'
            cand --column-type 'Datatype of a column of csv, tsv or rows; may be repeated [default: inferred from the first 1000 rows]'
            cand -u 'Server address, as HOST:PORT with an optional path; given twice'
            cand --url 'Server address, as HOST:PORT with an optional path; given twice'
            cand -m 'Model name on both servers'
            cand --model-name 'Model name on both servers'
            cand --model-version 'Model version on both servers'
            cand -t 'Protocol [default: rest]'
            cand --transport 'Protocol [default: rest]'
            cand -H 'Header to send with each request, as `NAME: VALUE`; may be repeated'
            cand --request-headers 'Header to send with each request, as `NAME: VALUE`; may be repeated'
            cand --token 'API key or token, sent to both servers as `authorization: Bearer TOKEN`'
            cand --timeout 'Timeout in seconds for connecting and for each response [default: 60]'
            cand --ca 'Trust the root certificates in this PEM file, in addition to those of the system'
            cand --cert 'Present the client certificate in this PEM file, which may also contain its key'
            cand --key 'Private key of --cert, as a PEM file'
            cand --absolute-tolerance 'Largest absolute difference between floating-point numbers that count as equal'
            cand --relative-tolerance 'Largest difference between floating-point numbers that count as equal, as a fraction of the larger one; added to --absolute-tolerance'
            cand -w 'Number of requests in flight at each server [default: 10]'
            cand --workers 'Number of requests in flight at each server [default: 10]'
            cand -s 'Rows per request; a request whose answers differ is split to find the rows [default: 1; for rows and tables 100]'
            cand --batch-size 'Rows per request; a request whose answers differ is split to find the rows [default: 1; for rows and tables 100]'
            cand -r 'Maximum attempts per request; only failures that may be temporary are retried [default: 3]'
            cand --retries 'Maximum attempts per request; only failures that may be temporary are retried [default: 3]'
            cand --summary 'Summary format: text or one JSON object, on standard error'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -b 'Send tensors as binary data instead of JSON'
            cand --binary-data 'Send tensors as binary data instead of JSON'
            cand --insecure 'Skip TLS certificate verification'
            cand -v 'Log each request (-v) or full traffic (-vv)'
            cand --verbose 'Log each request (-v) or full traffic (-vv)'
            cand -q 'Suppress progress, warnings and summary; only report why the run failed'
            cand --quiet 'Suppress progress, warnings and summary; only report why the run failed'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mlserver;init'= {
            cand -t 'Name of a template, a folder, or an archive (.zip, .tar, .tar.gz) or its URL'
            cand --template 'Name of a template, a folder, or an archive (.zip, .tar, .tar.gz) or its URL'
            cand --from 'Create a project from a copy of a model file, instead of a template'
            cand --name 'Name of the project and its model [default: the folder''s name, or `my-model`]'
            cand --format 'Output format of --list'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand --list 'List the templates'
            cand --dockerfile 'Also write a Dockerfile and a `.dockerignore` file, as `mlserver dockerfile --include-dockerignore` does'
            cand --force 'Overwrite existing files'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;pull'= {
            cand --include 'Pattern of the files to fetch, with `*` for any text; may be repeated [default: all]'
            cand --exclude 'Pattern of files not to fetch; may be repeated'
            cand --concurrency 'Number of files to fetch at once [default: the setting `storage_concurrency`]'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand --list 'List the files instead of fetching them; takes URIs without folders'
            cand --lock 'Write the sizes and SHA-256 hashes of the files into `mlserver.lock`; later runs, and the server, refuse other files'
            cand -q 'Show no progress'
            cand --quiet 'Show no progress'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mlserver;dockerfile'= {
            cand -o 'File to write, or `-` for standard output [default: `Dockerfile` in the folder]'
            cand --output 'File to write, or `-` for standard output [default: `Dockerfile` in the folder]'
            cand --base 'Base image [default: none for native models, otherwise one with Python]'
            cand --python 'Version of Python of the default base image, such as 3.10 [default: that of the project, otherwise 3.12]'
            cand --server 'Image to copy the server from'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -i 'Also write a `.dockerignore` file: in the folder, or with --output next to FILE as `FILE.dockerignore`'
            cand --include-dockerignore 'Also write a `.dockerignore` file: in the folder, or with --output next to FILE as `FILE.dockerignore`'
            cand --force 'Replace files that were not generated by this command'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;build'= {
            cand -t 'Name of the image; for base images, their name without a version'
            cand --tag 'Name of the image; for base images, their name without a version'
            cand --base 'Base image [default: none for native models, otherwise one with Python]'
            cand --python 'Version of Python of the default base image, such as 3.10 [default: that of the project, otherwise 3.12]'
            cand --server 'Image to copy the server from [default: this executable]'
            cand --platform 'Platform of the image, such as `linux/arm64` [default: that of the engine]'
            cand --base-images 'Build the images that Dockerfiles and manifests start from: `all`, only the `slim` one, which has no Python, or that and the `python` one, which has no frameworks'
            cand --requirements 'Packages of the base image with frameworks [default: pinned versions of the frameworks]'
            cand --build-arg 'Build argument for the Dockerfile; may be repeated'
            cand --network 'Network for the build and the check [default: that of the engine]'
            cand --format 'Output format'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand --offline-models 'Put the models of object stores into the image, instead of fetching them in each container'
            cand --no-cache 'Do not use the build cache'
            cand --classic 'Use the classic builder, for engines without BuildKit'
            cand --check 'Run the image and send each model the `request.json` next to its settings'
            cand --push 'Push the image to its registry, after the check'
            cand -q 'Report only warnings and errors'
            cand --quiet 'Report only warnings and errors'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;manifest'= {
            cand --image 'Image to run'
            cand --kind 'Type of manifest'
            cand --name 'Name of the resources [default: derived from the folder''s name]'
            cand --replicas 'Number of replicas'
            cand --cpu 'CPUs to request, such as `2` or `500m`'
            cand --memory 'Memory to request, which is also the limit'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mlserver;doctor'= {
            cand --format 'Output format'
            cand --settings 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports'
            cand --set 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings'
            cand --host 'Address to listen on, like `--set host=ADDRESS`'
            cand --http-port 'Port of the REST server; 0 means any free port'
            cand --grpc-port 'Port of the gRPC server; 0 means any free port'
            cand --metrics-port 'Port of the metrics server; 0 means any free port'
            cand --log-level 'Lowest severity of log lines to write'
            cand --parallel-workers 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand --image 'Also check that images can be built'
            cand --debug 'Log at debug level, including an access log'
            cand --no-debug 'Do not log at debug level, even if the settings do'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mlserver;config'= {
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help'
            cand --help 'Print help'
            cand show 'Print every effective setting and its source'
            cand list 'List all settings with their types, defaults and environment variables'
            cand explain 'Explain one setting'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mlserver;config;show'= {
            cand --settings 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports'
            cand --set 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings'
            cand --host 'Address to listen on, like `--set host=ADDRESS`'
            cand --http-port 'Port of the REST server; 0 means any free port'
            cand --grpc-port 'Port of the gRPC server; 0 means any free port'
            cand --metrics-port 'Port of the metrics server; 0 means any free port'
            cand --log-level 'Lowest severity of log lines to write'
            cand --parallel-workers 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline'
            cand --format 'Output format'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand --strict 'Reject unknown keys in settings files'
            cand --debug 'Log at debug level, including an access log'
            cand --no-debug 'Do not log at debug level, even if the settings do'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;config;list'= {
            cand --format 'Output format'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;config;explain'= {
            cand --format 'Output format'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;config;help'= {
            cand show 'Print every effective setting and its source'
            cand list 'List all settings with their types, defaults and environment variables'
            cand explain 'Explain one setting'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mlserver;config;help;show'= {
        }
        &'mlserver;config;help;list'= {
        }
        &'mlserver;config;help;explain'= {
        }
        &'mlserver;config;help;help'= {
        }
        &'mlserver;inspect'= {
            cand --format 'Output format'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand --example 'Print only an example request that the model answers'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;keys'= {
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help'
            cand --help 'Print help'
            cand create 'Create a key and print it once; the file stores only its hash'
            cand list 'List the keys of a file'
            cand revoke 'Remove a key from its file; running servers reject it within 10 seconds'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mlserver;keys;create'= {
            cand --name 'Name of the key, for logs and metrics'
            cand --scope 'Scope of the key; may be repeated'
            cand --models 'Pattern of the models that the key may use, with `*` for any text; may be repeated [default: all]'
            cand --expires 'Expiry time of the key, such as `2030-01-31T00:00:00Z`'
            cand --requests-per-second 'Maximum requests per second'
            cand --burst 'Maximum burst of requests [default: the requests of one second]'
            cand --max-in-flight 'Maximum requests in flight'
            cand --file 'Key file [default: the setting `api_keys_file`]'
            cand --folder 'Folder whose settings name the file'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mlserver;keys;list'= {
            cand --file 'Key file [default: the setting `api_keys_file`]'
            cand --folder 'Folder whose settings name the file'
            cand --format 'Output format'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;keys;revoke'= {
            cand --file 'Key file [default: the setting `api_keys_file`]'
            cand --folder 'Folder whose settings name the file'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;keys;help'= {
            cand create 'Create a key and print it once; the file stores only its hash'
            cand list 'List the keys of a file'
            cand revoke 'Remove a key from its file; running servers reject it within 10 seconds'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mlserver;keys;help;create'= {
        }
        &'mlserver;keys;help;list'= {
        }
        &'mlserver;keys;help;revoke'= {
        }
        &'mlserver;keys;help;help'= {
        }
        &'mlserver;graph'= {
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help'
            cand --help 'Print help'
            cand show 'Print the steps of inference graphs, their dependencies, and missing models'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mlserver;graph;show'= {
            cand --format 'Output format'
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mlserver;graph;help'= {
            cand show 'Print the steps of inference graphs, their dependencies, and missing models'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mlserver;graph;help;show'= {
        }
        &'mlserver;graph;help;help'= {
        }
        &'mlserver;completions'= {
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;man'= {
            cand --color 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mlserver;help'= {
            cand start 'Serve the models of a folder or a KServe script, or a model file'
            cand infer 'Run batch inference over a file or a Kafka topic'
            cand compare 'Send the same requests to two servers, and report the rows whose answers differ'
            cand init 'Create a project that is ready to serve, test and build'
            cand pull 'Fetch models from object stores into folders'
            cand dockerfile 'Write a Dockerfile for a model folder'
            cand build 'Build a container image of a model folder'
            cand manifest 'Print a Kubernetes manifest for an image'
            cand doctor 'Diagnose a folder or model file before serving it'
            cand config 'Inspect settings'
            cand inspect 'Show what a model file contains, and whether it is served natively'
            cand keys 'Create, list and revoke API keys'
            cand graph 'Inspect inference graphs'
            cand completions 'Print shell completions'
            cand man 'Write the manual pages to a folder'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mlserver;help;start'= {
        }
        &'mlserver;help;infer'= {
        }
        &'mlserver;help;compare'= {
        }
        &'mlserver;help;init'= {
        }
        &'mlserver;help;pull'= {
        }
        &'mlserver;help;dockerfile'= {
        }
        &'mlserver;help;build'= {
        }
        &'mlserver;help;manifest'= {
        }
        &'mlserver;help;doctor'= {
        }
        &'mlserver;help;config'= {
            cand show 'Print every effective setting and its source'
            cand list 'List all settings with their types, defaults and environment variables'
            cand explain 'Explain one setting'
        }
        &'mlserver;help;config;show'= {
        }
        &'mlserver;help;config;list'= {
        }
        &'mlserver;help;config;explain'= {
        }
        &'mlserver;help;inspect'= {
        }
        &'mlserver;help;keys'= {
            cand create 'Create a key and print it once; the file stores only its hash'
            cand list 'List the keys of a file'
            cand revoke 'Remove a key from its file; running servers reject it within 10 seconds'
        }
        &'mlserver;help;keys;create'= {
        }
        &'mlserver;help;keys;list'= {
        }
        &'mlserver;help;keys;revoke'= {
        }
        &'mlserver;help;graph'= {
            cand show 'Print the steps of inference graphs, their dependencies, and missing models'
        }
        &'mlserver;help;graph;show'= {
        }
        &'mlserver;help;completions'= {
        }
        &'mlserver;help;man'= {
        }
        &'mlserver;help;help'= {
        }
    ]
    $completions[$command]
}
