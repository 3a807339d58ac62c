
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
            [CompletionResult]::new('init', 'init', [CompletionResultType]::ParameterValue, 'Make a new project that serves, tests and builds at once')
            [CompletionResult]::new('dockerfile', 'dockerfile', [CompletionResultType]::ParameterValue, 'Write a Dockerfile for a folder of models')
            [CompletionResult]::new('build', 'build', [CompletionResultType]::ParameterValue, 'Build an image of a folder of models')
            [CompletionResult]::new('manifest', 'manifest', [CompletionResultType]::ParameterValue, 'Print a manifest that runs an image of a folder')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Check what a folder needs to be served, and say what to do')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Inspect settings')
            [CompletionResult]::new('inspect', 'inspect', [CompletionResultType]::ParameterValue, 'Print what a scikit-learn artefact holds, and whether it is served natively')
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
