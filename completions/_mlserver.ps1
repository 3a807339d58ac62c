
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'mlserver' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'mlserver'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'mlserver' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('start', 'start', [CompletionResultType]::ParameterValue, 'Serve the models of a folder or a KServe script, or a model file')
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Serve the models of a folder or a KServe script, or a model file')
            [CompletionResult]::new('infer', 'infer', [CompletionResultType]::ParameterValue, 'Run batch inference over a file or a Kafka topic')
            [CompletionResult]::new('compare', 'compare', [CompletionResultType]::ParameterValue, 'Send the same requests to two servers, and report the rows whose answers differ')
            [CompletionResult]::new('init', 'init', [CompletionResultType]::ParameterValue, 'Create a project that is ready to serve, test and build')
            [CompletionResult]::new('pull', 'pull', [CompletionResultType]::ParameterValue, 'Fetch models from object stores into folders')
            [CompletionResult]::new('dockerfile', 'dockerfile', [CompletionResultType]::ParameterValue, 'Write a Dockerfile for a model folder')
            [CompletionResult]::new('build', 'build', [CompletionResultType]::ParameterValue, 'Build a container image of a model folder')
            [CompletionResult]::new('manifest', 'manifest', [CompletionResultType]::ParameterValue, 'Print a Kubernetes manifest for an image')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Diagnose a folder or model file before serving it')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Inspect settings')
            [CompletionResult]::new('inspect', 'inspect', [CompletionResultType]::ParameterValue, 'Show what a model file contains, and whether it is served natively')
            [CompletionResult]::new('keys', 'keys', [CompletionResultType]::ParameterValue, 'Create, list and revoke API keys')
            [CompletionResult]::new('graph', 'graph', [CompletionResultType]::ParameterValue, 'Inspect inference graphs')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print shell completions')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Write the manual pages to a folder')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mlserver;start' {
            [CompletionResult]::new('--port-file', '--port-file', [CompletionResultType]::ParameterName, 'Write the server''s addresses to FILE as JSON, once the models are loaded')
            [CompletionResult]::new('--model-name', '--model-name', [CompletionResultType]::ParameterName, 'Name of a model without `model-settings.json`: of the model file, or of the only model in the folder [default: the value of `MLSERVER_MODEL_NAME`]')
            [CompletionResult]::new('--settings', '--settings', [CompletionResultType]::ParameterName, 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address to listen on, like `--set host=ADDRESS`')
            [CompletionResult]::new('--http-port', '--http-port', [CompletionResultType]::ParameterName, 'Port of the REST server; 0 means any free port')
            [CompletionResult]::new('--grpc-port', '--grpc-port', [CompletionResultType]::ParameterName, 'Port of the gRPC server; 0 means any free port')
            [CompletionResult]::new('--metrics-port', '--metrics-port', [CompletionResultType]::ParameterName, 'Port of the metrics server; 0 means any free port')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'Lowest severity of log lines to write')
            [CompletionResult]::new('--parallel-workers', '--parallel-workers', [CompletionResultType]::ParameterName, 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'Reject unknown keys in settings files')
            [CompletionResult]::new('--allow-empty', '--allow-empty', [CompletionResultType]::ParameterName, 'Start even if the folder has no models')
            [CompletionResult]::new('--debug', '--debug', [CompletionResultType]::ParameterName, 'Log at debug level, including an access log')
            [CompletionResult]::new('--no-debug', '--no-debug', [CompletionResultType]::ParameterName, 'Do not log at debug level, even if the settings do')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;serve' {
            [CompletionResult]::new('--port-file', '--port-file', [CompletionResultType]::ParameterName, 'Write the server''s addresses to FILE as JSON, once the models are loaded')
            [CompletionResult]::new('--model-name', '--model-name', [CompletionResultType]::ParameterName, 'Name of a model without `model-settings.json`: of the model file, or of the only model in the folder [default: the value of `MLSERVER_MODEL_NAME`]')
            [CompletionResult]::new('--settings', '--settings', [CompletionResultType]::ParameterName, 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address to listen on, like `--set host=ADDRESS`')
            [CompletionResult]::new('--http-port', '--http-port', [CompletionResultType]::ParameterName, 'Port of the REST server; 0 means any free port')
            [CompletionResult]::new('--grpc-port', '--grpc-port', [CompletionResultType]::ParameterName, 'Port of the gRPC server; 0 means any free port')
            [CompletionResult]::new('--metrics-port', '--metrics-port', [CompletionResultType]::ParameterName, 'Port of the metrics server; 0 means any free port')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'Lowest severity of log lines to write')
            [CompletionResult]::new('--parallel-workers', '--parallel-workers', [CompletionResultType]::ParameterName, 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'Reject unknown keys in settings files')
            [CompletionResult]::new('--allow-empty', '--allow-empty', [CompletionResultType]::ParameterName, 'Start even if the folder has no models')
            [CompletionResult]::new('--debug', '--debug', [CompletionResultType]::ParameterName, 'Log at debug level, including an access log')
            [CompletionResult]::new('--no-debug', '--no-debug', [CompletionResultType]::ParameterName, 'Do not log at debug level, even if the settings do')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;infer' {
            [CompletionResult]::new('-i', '-i', [CompletionResultType]::ParameterName, 'Input file, `-` for standard input, kafka://HOST:PORT/TOPIC, or a URI of objects, such as `s3://BUCKET/in/part-*.parquet`; may be repeated [env: MLSERVER_INFER_INPUT_DATA_PATH]')
            [CompletionResult]::new('--input-data-path', '--input-data-path', [CompletionResultType]::ParameterName, 'Input file, `-` for standard input, kafka://HOST:PORT/TOPIC, or a URI of objects, such as `s3://BUCKET/in/part-*.parquet`; may be repeated [env: MLSERVER_INFER_INPUT_DATA_PATH]')
            [CompletionResult]::new('--input-format', '--input-format', [CompletionResultType]::ParameterName, 'Input format: `requests` (JSON Lines of requests), `openai` (a batch file of OpenAI''s API), `rows` (JSON Lines of objects whose keys are columns), or a table; `orc` and `catalog` (tables by name) need --engine [env: MLSERVER_INFER_INPUT_FORMAT] [default: by extension: .ndjson is rows; .csv, .tsv, .npy and .parquet are tables; anything else is requests, or openai if its first line is one]')
            [CompletionResult]::new('--column-type', '--column-type', [CompletionResultType]::ParameterName, 'Datatype of a column of csv, tsv or rows; may be repeated [default: inferred from the first 1000 rows]')
            [CompletionResult]::new('--outputs', '--outputs', [CompletionResultType]::ParameterName, 'Outputs to request for rows and tables, separated by commas [default: chosen by the model]')
            [CompletionResult]::new('-o', '-o', [CompletionResultType]::ParameterName, 'Output file or object, `-` for standard output, kafka://HOST:PORT/TOPIC, or a folder for the answers to each input, with `/` at its end; .csv, .tsv, .parquet and .pq get columns, anything else JSON Lines [env: MLSERVER_INFER_OUTPUT_DATA_PATH]')
            [CompletionResult]::new('--output-data-path', '--output-data-path', [CompletionResultType]::ParameterName, 'Output file or object, `-` for standard output, kafka://HOST:PORT/TOPIC, or a folder for the answers to each input, with `/` at its end; .csv, .tsv, .parquet and .pq get columns, anything else JSON Lines [env: MLSERVER_INFER_OUTPUT_DATA_PATH]')
            [CompletionResult]::new('--engine', '--engine', [CompletionResultType]::ParameterName, 'Run the job on a cluster: `spark` runs spark-submit of SPARK_HOME or PATH, `ray` runs `ray job submit`; the output is a folder of Parquet')
            [CompletionResult]::new('--engine-arg', '--engine-arg', [CompletionResultType]::ParameterName, 'Argument for spark-submit or `ray job submit`, such as `--engine-arg=--master=yarn`; may be repeated')
            [CompletionResult]::new('--keep', '--keep', [CompletionResultType]::ParameterName, 'Columns that the output keeps, separated by commas [default: all]')
            [CompletionResult]::new('--columns', '--columns', [CompletionResultType]::ParameterName, 'Columns of the model''s features in their order, separated by commas [default: by the names of the features]')
            [CompletionResult]::new('--partition-by', '--partition-by', [CompletionResultType]::ParameterName, 'Columns whose values name the folders of the output, separated by commas')
            [CompletionResult]::new('--kafka-group', '--kafka-group', [CompletionResultType]::ParameterName, 'Consumer group of the input topic: a run continues after the offsets that it has committed [env: MLSERVER_INFER_KAFKA_GROUP] [default: mlserver-infer]')
            [CompletionResult]::new('--kafka-config', '--kafka-config', [CompletionResultType]::ParameterName, 'librdkafka property for the input and the output topic, such as `security.protocol=sasl_ssl`; may be repeated [env: MLSERVER_INFER_KAFKA_CONFIG, as a JSON object]')
            [CompletionResult]::new('-u', '-u', [CompletionResultType]::ParameterName, 'Server address, as HOST:PORT with an optional path; for a batch of OpenAI''s API, /openai is tried if there is none [env: MLSERVER_INFER_URL] [default: localhost:8080, or localhost:8081 with --transport grpc]')
            [CompletionResult]::new('--url', '--url', [CompletionResultType]::ParameterName, 'Server address, as HOST:PORT with an optional path; for a batch of OpenAI''s API, /openai is tried if there is none [env: MLSERVER_INFER_URL] [default: localhost:8080, or localhost:8081 with --transport grpc]')
            [CompletionResult]::new('--embedded', '--embedded', [CompletionResultType]::ParameterName, 'Load the model of FOLDER, which may be a URI of an object store, or a model file, in this process instead of using a server')
            [CompletionResult]::new('-m', '-m', [CompletionResultType]::ParameterName, 'Model name; only needed if the server, or FOLDER of --embedded, has several models; overrides the models that a batch of OpenAI''s API names; with --engine, the folder, file or URI of the model [env: MLSERVER_INFER_MODEL_NAME]')
            [CompletionResult]::new('--model-name', '--model-name', [CompletionResultType]::ParameterName, 'Model name; only needed if the server, or FOLDER of --embedded, has several models; overrides the models that a batch of OpenAI''s API names; with --engine, the folder, file or URI of the model [env: MLSERVER_INFER_MODEL_NAME]')
            [CompletionResult]::new('--model-version', '--model-version', [CompletionResultType]::ParameterName, 'Model version [env: MLSERVER_INFER_MODEL_VERSION] [default: chosen by the server]')
            [CompletionResult]::new('-t', '-t', [CompletionResultType]::ParameterName, 'Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]')
            [CompletionResult]::new('--transport', '--transport', [CompletionResultType]::ParameterName, 'Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]')
            [CompletionResult]::new('-H', '-H ', [CompletionResultType]::ParameterName, 'Header to send with each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as `NAME:VALUE NAME:VALUE`]')
            [CompletionResult]::new('--request-headers', '--request-headers', [CompletionResultType]::ParameterName, 'Header to send with each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as `NAME:VALUE NAME:VALUE`]')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'API key or token, sent as `authorization: Bearer TOKEN`; use the variable to hide it from lists of processes [env: MLSERVER_INFER_TOKEN]')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Timeout in seconds for connecting and for each response [env: MLSERVER_INFER_CONNECTION_TIMEOUT] [default: 60]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust the root certificates in this PEM file, in addition to those of the system [env: MLSERVER_INFER_CA]')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'Present the client certificate in this PEM file, which may also contain its key [env: MLSERVER_INFER_CERT]')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'Private key of --cert, as a PEM file [env: MLSERVER_INFER_KEY]')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Initial number of requests in flight [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, the number of cores plus one]')
            [CompletionResult]::new('--workers', '--workers', [CompletionResultType]::ParameterName, 'Initial number of requests in flight [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, the number of cores plus one]')
            [CompletionResult]::new('--max-workers', '--max-workers', [CompletionResultType]::ParameterName, 'Maximum number of requests in flight; concurrency grows while throughput improves [env: MLSERVER_INFER_MAX_WORKERS] [default: --workers if it is set or with --embedded, otherwise 64]')
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Rows per request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, or 1000 with --embedded]')
            [CompletionResult]::new('--batch-size', '--batch-size', [CompletionResultType]::ParameterName, 'Rows per request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, or 1000 with --embedded]')
            [CompletionResult]::new('-r', '-r', [CompletionResultType]::ParameterName, 'Maximum attempts per request; only failures that may be temporary are retried [env: MLSERVER_INFER_RETRIES] [default: 3]')
            [CompletionResult]::new('--retries', '--retries', [CompletionResultType]::ParameterName, 'Maximum attempts per request; only failures that may be temporary are retried [env: MLSERVER_INFER_RETRIES] [default: 3]')
            [CompletionResult]::new('--batch-interval', '--batch-interval', [CompletionResultType]::ParameterName, 'Minimum seconds between requests per worker [env: MLSERVER_INFER_BATCH_INTERVAL] [default: 0]')
            [CompletionResult]::new('--batch-jitter', '--batch-jitter', [CompletionResultType]::ParameterName, 'Maximum random seconds added to --batch-interval [env: MLSERVER_INFER_BATCH_JITTER] [default: 0]')
            [CompletionResult]::new('--rate', '--rate', [CompletionResultType]::ParameterName, 'Maximum rows per second [env: MLSERVER_INFER_RATE] [default: unlimited]')
            [CompletionResult]::new('--summary', '--summary', [CompletionResultType]::ParameterName, 'Summary format: text on standard error, or one JSON object on standard output (on standard error if the answers go to standard output)')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('--resume', '--resume', [CompletionResultType]::ParameterName, 'Resume an interrupted run from PATH.partial, or continue a complete PATH of JSON Lines if the input has more rows; a run that reads a topic always resumes; with --engine, score the input files that the column `source_file` of the output does not name')
            [CompletionResult]::new('--overwrite', '--overwrite', [CompletionResultType]::ParameterName, 'Replace an existing output')
            [CompletionResult]::new('--dry-run', '--dry-run', [CompletionResultType]::ParameterName, 'Print the command of the engine instead of running it')
            [CompletionResult]::new('-b', '-b', [CompletionResultType]::ParameterName, 'Send tensors as binary data instead of JSON [env: MLSERVER_INFER_BINARY_DATA]')
            [CompletionResult]::new('--binary-data', '--binary-data', [CompletionResultType]::ParameterName, 'Send tensors as binary data instead of JSON [env: MLSERVER_INFER_BINARY_DATA]')
            [CompletionResult]::new('--no-binary-data', '--no-binary-data', [CompletionResultType]::ParameterName, 'Send tensors as JSON')
            [CompletionResult]::new('--use-ssl', '--use-ssl', [CompletionResultType]::ParameterName, 'Use TLS [env: MLSERVER_INFER_USE_SSL]')
            [CompletionResult]::new('--no-use-ssl', '--no-use-ssl', [CompletionResultType]::ParameterName, 'Use TLS only if the address has the scheme `https`')
            [CompletionResult]::new('--insecure', '--insecure', [CompletionResultType]::ParameterName, 'Skip TLS certificate verification [env: MLSERVER_INFER_INSECURE]')
            [CompletionResult]::new('--no-insecure', '--no-insecure', [CompletionResultType]::ParameterName, 'Verify TLS certificates')
            [CompletionResult]::new('--http2', '--http2', [CompletionResultType]::ParameterName, 'Use HTTP/2 for REST even without TLS; the server must support it [env: MLSERVER_INFER_HTTP2]')
            [CompletionResult]::new('--no-http2', '--no-http2', [CompletionResultType]::ParameterName, 'Use HTTP/2 for REST only over TLS')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log retries and split requests (-v) or full traffic (-vv, --extra-verbose) [env: MLSERVER_INFER_VERBOSE, MLSERVER_INFER_EXTRA_VERBOSE]')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log retries and split requests (-v) or full traffic (-vv, --extra-verbose) [env: MLSERVER_INFER_VERBOSE, MLSERVER_INFER_EXTRA_VERBOSE]')
            [CompletionResult]::new('--extra-verbose', '--extra-verbose', [CompletionResultType]::ParameterName, 'Log full traffic, like -vv')
            [CompletionResult]::new('--no-verbose', '--no-verbose', [CompletionResultType]::ParameterName, 'Do not log requests')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Suppress progress, warnings and summary; only report why the run failed')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Suppress progress, warnings and summary; only report why the run failed')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mlserver;compare' {
            [CompletionResult]::new('--input-format', '--input-format', [CompletionResultType]::ParameterName, 'Input format: `requests` (JSON Lines of requests), `rows` (JSON Lines of objects whose keys are columns), or a table [default: by extension]')
            [CompletionResult]::new('--column-type', '--column-type', [CompletionResultType]::ParameterName, 'Datatype of a column of csv, tsv or rows; may be repeated [default: inferred from the first 1000 rows]')
            [CompletionResult]::new('-u', '-u', [CompletionResultType]::ParameterName, 'Server address, as HOST:PORT with an optional path; given twice')
            [CompletionResult]::new('--url', '--url', [CompletionResultType]::ParameterName, 'Server address, as HOST:PORT with an optional path; given twice')
            [CompletionResult]::new('-m', '-m', [CompletionResultType]::ParameterName, 'Model name on both servers')
            [CompletionResult]::new('--model-name', '--model-name', [CompletionResultType]::ParameterName, 'Model name on both servers')
            [CompletionResult]::new('--model-version', '--model-version', [CompletionResultType]::ParameterName, 'Model version on both servers')
            [CompletionResult]::new('-t', '-t', [CompletionResultType]::ParameterName, 'Protocol [default: rest]')
            [CompletionResult]::new('--transport', '--transport', [CompletionResultType]::ParameterName, 'Protocol [default: rest]')
            [CompletionResult]::new('-H', '-H ', [CompletionResultType]::ParameterName, 'Header to send with each request, as `NAME: VALUE`; may be repeated')
            [CompletionResult]::new('--request-headers', '--request-headers', [CompletionResultType]::ParameterName, 'Header to send with each request, as `NAME: VALUE`; may be repeated')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'API key or token, sent to both servers as `authorization: Bearer TOKEN`')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Timeout in seconds for connecting and for each response [default: 60]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust the root certificates in this PEM file, in addition to those of the system')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'Present the client certificate in this PEM file, which may also contain its key')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'Private key of --cert, as a PEM file')
            [CompletionResult]::new('--absolute-tolerance', '--absolute-tolerance', [CompletionResultType]::ParameterName, 'Largest absolute difference between floating-point numbers that count as equal')
            [CompletionResult]::new('--relative-tolerance', '--relative-tolerance', [CompletionResultType]::ParameterName, 'Largest difference between floating-point numbers that count as equal, as a fraction of the larger one; added to --absolute-tolerance')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Number of requests in flight at each server [default: 10]')
            [CompletionResult]::new('--workers', '--workers', [CompletionResultType]::ParameterName, 'Number of requests in flight at each server [default: 10]')
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Rows per request; a request whose answers differ is split to find the rows [default: 1; for rows and tables 100]')
            [CompletionResult]::new('--batch-size', '--batch-size', [CompletionResultType]::ParameterName, 'Rows per request; a request whose answers differ is split to find the rows [default: 1; for rows and tables 100]')
            [CompletionResult]::new('-r', '-r', [CompletionResultType]::ParameterName, 'Maximum attempts per request; only failures that may be temporary are retried [default: 3]')
            [CompletionResult]::new('--retries', '--retries', [CompletionResultType]::ParameterName, 'Maximum attempts per request; only failures that may be temporary are retried [default: 3]')
            [CompletionResult]::new('--summary', '--summary', [CompletionResultType]::ParameterName, 'Summary format: text or one JSON object, on standard error')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-b', '-b', [CompletionResultType]::ParameterName, 'Send tensors as binary data instead of JSON')
            [CompletionResult]::new('--binary-data', '--binary-data', [CompletionResultType]::ParameterName, 'Send tensors as binary data instead of JSON')
            [CompletionResult]::new('--insecure', '--insecure', [CompletionResultType]::ParameterName, 'Skip TLS certificate verification')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log each request (-v) or full traffic (-vv)')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log each request (-v) or full traffic (-vv)')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Suppress progress, warnings and summary; only report why the run failed')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Suppress progress, warnings and summary; only report why the run failed')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mlserver;init' {
            [CompletionResult]::new('-t', '-t', [CompletionResultType]::ParameterName, 'Name of a template, a folder, or an archive (.zip, .tar, .tar.gz) or its URL')
            [CompletionResult]::new('--template', '--template', [CompletionResultType]::ParameterName, 'Name of a template, a folder, or an archive (.zip, .tar, .tar.gz) or its URL')
            [CompletionResult]::new('--from', '--from', [CompletionResultType]::ParameterName, 'Create a project from a copy of a model file, instead of a template')
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'Name of the project and its model [default: the folder''s name, or `my-model`]')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output format of --list')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('--list', '--list', [CompletionResultType]::ParameterName, 'List the templates')
            [CompletionResult]::new('--dockerfile', '--dockerfile', [CompletionResultType]::ParameterName, 'Also write a Dockerfile and a `.dockerignore` file, as `mlserver dockerfile --include-dockerignore` does')
            [CompletionResult]::new('--force', '--force', [CompletionResultType]::ParameterName, 'Overwrite existing files')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;pull' {
            [CompletionResult]::new('--include', '--include', [CompletionResultType]::ParameterName, 'Pattern of the files to fetch, with `*` for any text; may be repeated [default: all]')
            [CompletionResult]::new('--exclude', '--exclude', [CompletionResultType]::ParameterName, 'Pattern of files not to fetch; may be repeated')
            [CompletionResult]::new('--concurrency', '--concurrency', [CompletionResultType]::ParameterName, 'Number of files to fetch at once [default: the setting `storage_concurrency`]')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('--list', '--list', [CompletionResultType]::ParameterName, 'List the files instead of fetching them; takes URIs without folders')
            [CompletionResult]::new('--lock', '--lock', [CompletionResultType]::ParameterName, 'Write the sizes and SHA-256 hashes of the files into `mlserver.lock`; later runs, and the server, refuse other files')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Show no progress')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Show no progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mlserver;dockerfile' {
            [CompletionResult]::new('-o', '-o', [CompletionResultType]::ParameterName, 'File to write, or `-` for standard output [default: `Dockerfile` in the folder]')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'File to write, or `-` for standard output [default: `Dockerfile` in the folder]')
            [CompletionResult]::new('--base', '--base', [CompletionResultType]::ParameterName, 'Base image [default: none for native models, otherwise one with Python]')
            [CompletionResult]::new('--python', '--python', [CompletionResultType]::ParameterName, 'Version of Python of the default base image, such as 3.10 [default: that of the project, otherwise 3.12]')
            [CompletionResult]::new('--server', '--server', [CompletionResultType]::ParameterName, 'Image to copy the server from')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-i', '-i', [CompletionResultType]::ParameterName, 'Also write a `.dockerignore` file: in the folder, or with --output next to FILE as `FILE.dockerignore`')
            [CompletionResult]::new('--include-dockerignore', '--include-dockerignore', [CompletionResultType]::ParameterName, 'Also write a `.dockerignore` file: in the folder, or with --output next to FILE as `FILE.dockerignore`')
            [CompletionResult]::new('--force', '--force', [CompletionResultType]::ParameterName, 'Replace files that were not generated by this command')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;build' {
            [CompletionResult]::new('-t', '-t', [CompletionResultType]::ParameterName, 'Name of the image; for base images, their name without a version')
            [CompletionResult]::new('--tag', '--tag', [CompletionResultType]::ParameterName, 'Name of the image; for base images, their name without a version')
            [CompletionResult]::new('--base', '--base', [CompletionResultType]::ParameterName, 'Base image [default: none for native models, otherwise one with Python]')
            [CompletionResult]::new('--python', '--python', [CompletionResultType]::ParameterName, 'Version of Python of the default base image, such as 3.10 [default: that of the project, otherwise 3.12]')
            [CompletionResult]::new('--server', '--server', [CompletionResultType]::ParameterName, 'Image to copy the server from [default: this executable]')
            [CompletionResult]::new('--platform', '--platform', [CompletionResultType]::ParameterName, 'Platform of the image, such as `linux/arm64` [default: that of the engine]')
            [CompletionResult]::new('--base-images', '--base-images', [CompletionResultType]::ParameterName, 'Build the images that Dockerfiles and manifests start from: `all`, only the `slim` one, which has no Python, or that and the `python` one, which has no frameworks')
            [CompletionResult]::new('--requirements', '--requirements', [CompletionResultType]::ParameterName, 'Packages of the base image with frameworks [default: pinned versions of the frameworks]')
            [CompletionResult]::new('--build-arg', '--build-arg', [CompletionResultType]::ParameterName, 'Build argument for the Dockerfile; may be repeated')
            [CompletionResult]::new('--network', '--network', [CompletionResultType]::ParameterName, 'Network for the build and the check [default: that of the engine]')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output format')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('--offline-models', '--offline-models', [CompletionResultType]::ParameterName, 'Put the models of object stores into the image, instead of fetching them in each container')
            [CompletionResult]::new('--no-cache', '--no-cache', [CompletionResultType]::ParameterName, 'Do not use the build cache')
            [CompletionResult]::new('--classic', '--classic', [CompletionResultType]::ParameterName, 'Use the classic builder, for engines without BuildKit')
            [CompletionResult]::new('--check', '--check', [CompletionResultType]::ParameterName, 'Run the image and send each model the `request.json` next to its settings')
            [CompletionResult]::new('--push', '--push', [CompletionResultType]::ParameterName, 'Push the image to its registry, after the check')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Report only warnings and errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Report only warnings and errors')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;manifest' {
            [CompletionResult]::new('--image', '--image', [CompletionResultType]::ParameterName, 'Image to run')
            [CompletionResult]::new('--kind', '--kind', [CompletionResultType]::ParameterName, 'Type of manifest')
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'Name of the resources [default: derived from the folder''s name]')
            [CompletionResult]::new('--replicas', '--replicas', [CompletionResultType]::ParameterName, 'Number of replicas')
            [CompletionResult]::new('--cpu', '--cpu', [CompletionResultType]::ParameterName, 'CPUs to request, such as `2` or `500m`')
            [CompletionResult]::new('--memory', '--memory', [CompletionResultType]::ParameterName, 'Memory to request, which is also the limit')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mlserver;doctor' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output format')
            [CompletionResult]::new('--settings', '--settings', [CompletionResultType]::ParameterName, 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address to listen on, like `--set host=ADDRESS`')
            [CompletionResult]::new('--http-port', '--http-port', [CompletionResultType]::ParameterName, 'Port of the REST server; 0 means any free port')
            [CompletionResult]::new('--grpc-port', '--grpc-port', [CompletionResultType]::ParameterName, 'Port of the gRPC server; 0 means any free port')
            [CompletionResult]::new('--metrics-port', '--metrics-port', [CompletionResultType]::ParameterName, 'Port of the metrics server; 0 means any free port')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'Lowest severity of log lines to write')
            [CompletionResult]::new('--parallel-workers', '--parallel-workers', [CompletionResultType]::ParameterName, 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('--image', '--image', [CompletionResultType]::ParameterName, 'Also check that images can be built')
            [CompletionResult]::new('--debug', '--debug', [CompletionResultType]::ParameterName, 'Log at debug level, including an access log')
            [CompletionResult]::new('--no-debug', '--no-debug', [CompletionResultType]::ParameterName, 'Do not log at debug level, even if the settings do')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mlserver;config' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print every effective setting and its source')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List all settings with their types, defaults and environment variables')
            [CompletionResult]::new('explain', 'explain', [CompletionResultType]::ParameterValue, 'Explain one setting')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mlserver;config;show' {
            [CompletionResult]::new('--settings', '--settings', [CompletionResultType]::ParameterName, 'Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the `settings.json` of the folder, which may then not set access, TLS, addresses and ports')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Change a setting; may be repeated, and the last value is used. Keys inside objects are separated by dots, lists are JSON. `mlserver config list` prints all settings')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'Address to listen on, like `--set host=ADDRESS`')
            [CompletionResult]::new('--http-port', '--http-port', [CompletionResultType]::ParameterName, 'Port of the REST server; 0 means any free port')
            [CompletionResult]::new('--grpc-port', '--grpc-port', [CompletionResultType]::ParameterName, 'Port of the gRPC server; 0 means any free port')
            [CompletionResult]::new('--metrics-port', '--metrics-port', [CompletionResultType]::ParameterName, 'Port of the metrics server; 0 means any free port')
            [CompletionResult]::new('--log-level', '--log-level', [CompletionResultType]::ParameterName, 'Lowest severity of log lines to write')
            [CompletionResult]::new('--parallel-workers', '--parallel-workers', [CompletionResultType]::ParameterName, 'Worker processes per pool of Python models; 0 means one worker that runs plain functions inline')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output format')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'Reject unknown keys in settings files')
            [CompletionResult]::new('--debug', '--debug', [CompletionResultType]::ParameterName, 'Log at debug level, including an access log')
            [CompletionResult]::new('--no-debug', '--no-debug', [CompletionResultType]::ParameterName, 'Do not log at debug level, even if the settings do')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;config;list' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output format')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;config;explain' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output format')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;config;help' {
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print every effective setting and its source')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List all settings with their types, defaults and environment variables')
            [CompletionResult]::new('explain', 'explain', [CompletionResultType]::ParameterValue, 'Explain one setting')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mlserver;config;help;show' {
            break
        }
        'mlserver;config;help;list' {
            break
        }
        'mlserver;config;help;explain' {
            break
        }
        'mlserver;config;help;help' {
            break
        }
        'mlserver;inspect' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output format')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('--example', '--example', [CompletionResultType]::ParameterName, 'Print only an example request that the model answers')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;keys' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('create', 'create', [CompletionResultType]::ParameterValue, 'Create a key and print it once; the file stores only its hash')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the keys of a file')
            [CompletionResult]::new('revoke', 'revoke', [CompletionResultType]::ParameterValue, 'Remove a key from its file; running servers reject it within 10 seconds')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mlserver;keys;create' {
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'Name of the key, for logs and metrics')
            [CompletionResult]::new('--scope', '--scope', [CompletionResultType]::ParameterName, 'Scope of the key; may be repeated')
            [CompletionResult]::new('--models', '--models', [CompletionResultType]::ParameterName, 'Pattern of the models that the key may use, with `*` for any text; may be repeated [default: all]')
            [CompletionResult]::new('--expires', '--expires', [CompletionResultType]::ParameterName, 'Expiry time of the key, such as `2030-01-31T00:00:00Z`')
            [CompletionResult]::new('--requests-per-second', '--requests-per-second', [CompletionResultType]::ParameterName, 'Maximum requests per second')
            [CompletionResult]::new('--burst', '--burst', [CompletionResultType]::ParameterName, 'Maximum burst of requests [default: the requests of one second]')
            [CompletionResult]::new('--max-in-flight', '--max-in-flight', [CompletionResultType]::ParameterName, 'Maximum requests in flight')
            [CompletionResult]::new('--file', '--file', [CompletionResultType]::ParameterName, 'Key file [default: the setting `api_keys_file`]')
            [CompletionResult]::new('--folder', '--folder', [CompletionResultType]::ParameterName, 'Folder whose settings name the file')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mlserver;keys;list' {
            [CompletionResult]::new('--file', '--file', [CompletionResultType]::ParameterName, 'Key file [default: the setting `api_keys_file`]')
            [CompletionResult]::new('--folder', '--folder', [CompletionResultType]::ParameterName, 'Folder whose settings name the file')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output format')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;keys;revoke' {
            [CompletionResult]::new('--file', '--file', [CompletionResultType]::ParameterName, 'Key file [default: the setting `api_keys_file`]')
            [CompletionResult]::new('--folder', '--folder', [CompletionResultType]::ParameterName, 'Folder whose settings name the file')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;keys;help' {
            [CompletionResult]::new('create', 'create', [CompletionResultType]::ParameterValue, 'Create a key and print it once; the file stores only its hash')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the keys of a file')
            [CompletionResult]::new('revoke', 'revoke', [CompletionResultType]::ParameterValue, 'Remove a key from its file; running servers reject it within 10 seconds')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mlserver;keys;help;create' {
            break
        }
        'mlserver;keys;help;list' {
            break
        }
        'mlserver;keys;help;revoke' {
            break
        }
        'mlserver;keys;help;help' {
            break
        }
        'mlserver;graph' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print the steps of inference graphs, their dependencies, and missing models')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mlserver;graph;show' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output format')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mlserver;graph;help' {
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print the steps of inference graphs, their dependencies, and missing models')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mlserver;graph;help;show' {
            break
        }
        'mlserver;graph;help;help' {
            break
        }
        'mlserver;completions' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;man' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;help' {
            [CompletionResult]::new('start', 'start', [CompletionResultType]::ParameterValue, 'Serve the models of a folder or a KServe script, or a model file')
            [CompletionResult]::new('infer', 'infer', [CompletionResultType]::ParameterValue, 'Run batch inference over a file or a Kafka topic')
            [CompletionResult]::new('compare', 'compare', [CompletionResultType]::ParameterValue, 'Send the same requests to two servers, and report the rows whose answers differ')
            [CompletionResult]::new('init', 'init', [CompletionResultType]::ParameterValue, 'Create a project that is ready to serve, test and build')
            [CompletionResult]::new('pull', 'pull', [CompletionResultType]::ParameterValue, 'Fetch models from object stores into folders')
            [CompletionResult]::new('dockerfile', 'dockerfile', [CompletionResultType]::ParameterValue, 'Write a Dockerfile for a model folder')
            [CompletionResult]::new('build', 'build', [CompletionResultType]::ParameterValue, 'Build a container image of a model folder')
            [CompletionResult]::new('manifest', 'manifest', [CompletionResultType]::ParameterValue, 'Print a Kubernetes manifest for an image')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Diagnose a folder or model file before serving it')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Inspect settings')
            [CompletionResult]::new('inspect', 'inspect', [CompletionResultType]::ParameterValue, 'Show what a model file contains, and whether it is served natively')
            [CompletionResult]::new('keys', 'keys', [CompletionResultType]::ParameterValue, 'Create, list and revoke API keys')
            [CompletionResult]::new('graph', 'graph', [CompletionResultType]::ParameterValue, 'Inspect inference graphs')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print shell completions')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Write the manual pages to a folder')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mlserver;help;start' {
            break
        }
        'mlserver;help;infer' {
            break
        }
        'mlserver;help;compare' {
            break
        }
        'mlserver;help;init' {
            break
        }
        'mlserver;help;pull' {
            break
        }
        'mlserver;help;dockerfile' {
            break
        }
        'mlserver;help;build' {
            break
        }
        'mlserver;help;manifest' {
            break
        }
        'mlserver;help;doctor' {
            break
        }
        'mlserver;help;config' {
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print every effective setting and its source')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List all settings with their types, defaults and environment variables')
            [CompletionResult]::new('explain', 'explain', [CompletionResultType]::ParameterValue, 'Explain one setting')
            break
        }
        'mlserver;help;config;show' {
            break
        }
        'mlserver;help;config;list' {
            break
        }
        'mlserver;help;config;explain' {
            break
        }
        'mlserver;help;inspect' {
            break
        }
        'mlserver;help;keys' {
            [CompletionResult]::new('create', 'create', [CompletionResultType]::ParameterValue, 'Create a key and print it once; the file stores only its hash')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the keys of a file')
            [CompletionResult]::new('revoke', 'revoke', [CompletionResultType]::ParameterValue, 'Remove a key from its file; running servers reject it within 10 seconds')
            break
        }
        'mlserver;help;keys;create' {
            break
        }
        'mlserver;help;keys;list' {
            break
        }
        'mlserver;help;keys;revoke' {
            break
        }
        'mlserver;help;graph' {
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print the steps of inference graphs, their dependencies, and missing models')
            break
        }
        'mlserver;help;graph;show' {
            break
        }
        'mlserver;help;completions' {
            break
        }
        'mlserver;help;man' {
            break
        }
        'mlserver;help;help' {
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
