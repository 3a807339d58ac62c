
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
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('start', 'start', [CompletionResultType]::ParameterValue, 'Start serving the models of a folder')
            [CompletionResult]::new('infer', 'infer', [CompletionResultType]::ParameterValue, 'Have a server answer a file of requests, in its order')
            [CompletionResult]::new('init', 'init', [CompletionResultType]::ParameterValue, 'Make a new project that serves, tests and builds at once')
            [CompletionResult]::new('dockerfile', 'dockerfile', [CompletionResultType]::ParameterValue, 'Write a Dockerfile for a folder of models')
            [CompletionResult]::new('build', 'build', [CompletionResultType]::ParameterValue, 'Build an image of a folder of models')
            [CompletionResult]::new('manifest', 'manifest', [CompletionResultType]::ParameterValue, 'Print a manifest that runs an image of a folder')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Check what a folder needs to be served, and say what to do')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Inspect settings')
            [CompletionResult]::new('inspect', 'inspect', [CompletionResultType]::ParameterValue, 'Print what an artifact or MLflow folder holds, and whether it is native')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print the completions of a shell')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Write the manual pages into a folder')
            break
        }
        'mlserver;start' {
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'Refuse unknown keys in settings files')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;infer' {
            [CompletionResult]::new('-u', '-u', [CompletionResultType]::ParameterName, 'Server, as HOST:PORT with an optional path [env: MLSERVER_INFER_URL] [default: localhost:8080, or localhost:8081 with --transport grpc]')
            [CompletionResult]::new('--url', '--url', [CompletionResultType]::ParameterName, 'Server, as HOST:PORT with an optional path [env: MLSERVER_INFER_URL] [default: localhost:8080, or localhost:8081 with --transport grpc]')
            [CompletionResult]::new('--embedded', '--embedded', [CompletionResultType]::ParameterName, 'Load the model of FOLDER in this process, and ask no server. The same happens without --url where --model-name is a folder with a `model-settings.json`')
            [CompletionResult]::new('-m', '-m', [CompletionResultType]::ParameterName, 'Model to ask; with --embedded, only where FOLDER holds several [env: MLSERVER_INFER_MODEL_NAME]')
            [CompletionResult]::new('--model-name', '--model-name', [CompletionResultType]::ParameterName, 'Model to ask; with --embedded, only where FOLDER holds several [env: MLSERVER_INFER_MODEL_NAME]')
            [CompletionResult]::new('--model-version', '--model-version', [CompletionResultType]::ParameterName, 'Version of the model, else the server chooses [env: MLSERVER_INFER_MODEL_VERSION]')
            [CompletionResult]::new('-i', '-i', [CompletionResultType]::ParameterName, 'File of requests or rows, `-` for standard input [env: MLSERVER_INFER_INPUT_DATA_PATH]')
            [CompletionResult]::new('--input-data-path', '--input-data-path', [CompletionResultType]::ParameterName, 'File of requests or rows, `-` for standard input [env: MLSERVER_INFER_INPUT_DATA_PATH]')
            [CompletionResult]::new('--input-format', '--input-format', [CompletionResultType]::ParameterName, 'What the input is: `requests` as JSON, `rows` as JSON objects whose keys are columns, or a table [env: MLSERVER_INFER_INPUT_FORMAT] [default: by extension: .ndjson is rows, .csv, .tsv, .npy and .parquet are tables, anything else requests]')
            [CompletionResult]::new('--column-type', '--column-type', [CompletionResultType]::ParameterName, 'Datatype of a column of csv, tsv or rows, which is else told from the first 1000 rows; may be repeated')
            [CompletionResult]::new('-o', '-o', [CompletionResultType]::ParameterName, 'File for the answers, a line each, `-` for standard output [env: MLSERVER_INFER_OUTPUT_DATA_PATH]')
            [CompletionResult]::new('--output-data-path', '--output-data-path', [CompletionResultType]::ParameterName, 'File for the answers, a line each, `-` for standard output [env: MLSERVER_INFER_OUTPUT_DATA_PATH]')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Requests under way at the start [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, one more than there are cores]')
            [CompletionResult]::new('--workers', '--workers', [CompletionResultType]::ParameterName, 'Requests under way at the start [env: MLSERVER_INFER_WORKERS] [default: 10; with --embedded, one more than there are cores]')
            [CompletionResult]::new('--max-workers', '--max-workers', [CompletionResultType]::ParameterName, 'Most requests under way, to which their number grows while that makes the run faster [env: MLSERVER_INFER_MAX_WORKERS] [default: --workers where it is given or with --embedded, else 64]')
            [CompletionResult]::new('-r', '-r', [CompletionResultType]::ParameterName, 'Attempts in total for a request that fails and may be answered another time [env: MLSERVER_INFER_RETRIES] [default: 3]')
            [CompletionResult]::new('--retries', '--retries', [CompletionResultType]::ParameterName, 'Attempts in total for a request that fails and may be answered another time [env: MLSERVER_INFER_RETRIES] [default: 3]')
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Rows in a request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, with --embedded 1000]')
            [CompletionResult]::new('--batch-size', '--batch-size', [CompletionResultType]::ParameterName, 'Rows in a request [env: MLSERVER_INFER_BATCH_SIZE] [default: 1; for rows and tables 100, with --embedded 1000]')
            [CompletionResult]::new('-t', '-t', [CompletionResultType]::ParameterName, 'Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]')
            [CompletionResult]::new('--transport', '--transport', [CompletionResultType]::ParameterName, 'Protocol [env: MLSERVER_INFER_TRANSPORT] [default: rest]')
            [CompletionResult]::new('-H', '-H ', [CompletionResultType]::ParameterName, 'Header of each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as `NAME:VALUE NAME:VALUE`]')
            [CompletionResult]::new('--request-headers', '--request-headers', [CompletionResultType]::ParameterName, 'Header of each request, as `NAME: VALUE`; may be repeated [env: MLSERVER_INFER_REQUEST_HEADERS, as `NAME:VALUE NAME:VALUE`]')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Seconds to wait for a connection, and for each answer [env: MLSERVER_INFER_CONNECTION_TIMEOUT] [default: 60]')
            [CompletionResult]::new('--batch-interval', '--batch-interval', [CompletionResultType]::ParameterName, 'Least seconds between the starts of two requests of one worker [env: MLSERVER_INFER_BATCH_INTERVAL] [default: 0]')
            [CompletionResult]::new('--batch-jitter', '--batch-jitter', [CompletionResultType]::ParameterName, 'Most seconds that are added to --batch-interval at random [env: MLSERVER_INFER_BATCH_JITTER] [default: 0]')
            [CompletionResult]::new('--rate', '--rate', [CompletionResultType]::ParameterName, 'Most rows to send in a second [env: MLSERVER_INFER_RATE]')
            [CompletionResult]::new('--summary', '--summary', [CompletionResultType]::ParameterName, 'How to sum up the run: as text on standard error, or as one JSON object on standard output (standard error when the answers go to standard output)')
            [CompletionResult]::new('--resume', '--resume', [CompletionResultType]::ParameterName, 'Go on behind the answers that an interrupted run has left in PATH.partial')
            [CompletionResult]::new('-b', '-b', [CompletionResultType]::ParameterName, 'Send tensors as bytes and not as text [env: MLSERVER_INFER_BINARY_DATA]')
            [CompletionResult]::new('--binary-data', '--binary-data', [CompletionResultType]::ParameterName, 'Send tensors as bytes and not as text [env: MLSERVER_INFER_BINARY_DATA]')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell of each request; twice (-vv), of what is sent and received, too [env: MLSERVER_INFER_VERBOSE]')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell of each request; twice (-vv), of what is sent and received, too [env: MLSERVER_INFER_VERBOSE]')
            [CompletionResult]::new('--extra-verbose', '--extra-verbose', [CompletionResultType]::ParameterName, 'The same as -vv [env: MLSERVER_INFER_EXTRA_VERBOSE]')
            [CompletionResult]::new('--use-ssl', '--use-ssl', [CompletionResultType]::ParameterName, 'Encrypt the connection [env: MLSERVER_INFER_USE_SSL]')
            [CompletionResult]::new('--insecure', '--insecure', [CompletionResultType]::ParameterName, 'Take any certificate of the server [env: MLSERVER_INFER_INSECURE]')
            [CompletionResult]::new('--http2', '--http2', [CompletionResultType]::ParameterName, 'Speak HTTP/2 over REST without encryption, too, which the server must know [env: MLSERVER_INFER_HTTP2]')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Show neither progress nor warnings nor a summary, only why it fails')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Show neither progress nor warnings nor a summary, only why it fails')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mlserver;init' {
            [CompletionResult]::new('-t', '-t', [CompletionResultType]::ParameterName, 'Name of a template, a folder, or an archive (.zip, .tar, .tar.gz)')
            [CompletionResult]::new('--template', '--template', [CompletionResultType]::ParameterName, 'Name of a template, a folder, or an archive (.zip, .tar, .tar.gz)')
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'Name of the project and of its model [default: that of the folder, else `my-model`]')
            [CompletionResult]::new('--list', '--list', [CompletionResultType]::ParameterName, 'Print the names of the templates')
            [CompletionResult]::new('--force', '--force', [CompletionResultType]::ParameterName, 'Overwrite files that are there')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;dockerfile' {
            [CompletionResult]::new('--base', '--base', [CompletionResultType]::ParameterName, 'Image to start from [default: none for native models, else one with Python]')
            [CompletionResult]::new('--server', '--server', [CompletionResultType]::ParameterName, 'Image to take the server from')
            [CompletionResult]::new('-i', '-i', [CompletionResultType]::ParameterName, 'Write a `Dockerfile.dockerignore`, too')
            [CompletionResult]::new('--include-dockerignore', '--include-dockerignore', [CompletionResultType]::ParameterName, 'Write a `Dockerfile.dockerignore`, too')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;build' {
            [CompletionResult]::new('-t', '-t', [CompletionResultType]::ParameterName, 'Name of the image')
            [CompletionResult]::new('--tag', '--tag', [CompletionResultType]::ParameterName, 'Name of the image')
            [CompletionResult]::new('--base', '--base', [CompletionResultType]::ParameterName, 'Image to start from [default: none for native models, else one with Python]')
            [CompletionResult]::new('--server', '--server', [CompletionResultType]::ParameterName, 'Image to take the server from [default: this executable]')
            [CompletionResult]::new('--platform', '--platform', [CompletionResultType]::ParameterName, 'Platform of the image, such as `linux/arm64` [default: the engine''s]')
            [CompletionResult]::new('--build-arg', '--build-arg', [CompletionResultType]::ParameterName, 'Value of an ARG of the Dockerfile; may be repeated')
            [CompletionResult]::new('--network', '--network', [CompletionResultType]::ParameterName, 'Network of the build''s commands and of the check [default: the engine''s]')
            [CompletionResult]::new('--no-cache', '--no-cache', [CompletionResultType]::ParameterName, 'Run every step anew')
            [CompletionResult]::new('--classic', '--classic', [CompletionResultType]::ParameterName, 'Use the classic builder, for engines without BuildKit')
            [CompletionResult]::new('--check', '--check', [CompletionResultType]::ParameterName, 'Start the image, load its models, and send each the `request.json` beside its settings')
            [CompletionResult]::new('--push', '--push', [CompletionResultType]::ParameterName, 'Send the image to the registry that its name leads to, after the check')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;manifest' {
            [CompletionResult]::new('--image', '--image', [CompletionResultType]::ParameterName, 'Image to run')
            [CompletionResult]::new('--kind', '--kind', [CompletionResultType]::ParameterName, 'Kind of the manifest')
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'Name of what it makes [default: the folder''s]')
            [CompletionResult]::new('--replicas', '--replicas', [CompletionResultType]::ParameterName, 'How many copies run')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mlserver;doctor' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;config' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print every effective setting and where it came from')
            break
        }
        'mlserver;config;show' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Print lines of text or one JSON object')
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'Refuse unknown keys in settings files')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;inspect' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;completions' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mlserver;man' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
