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
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "init" -d 'Make a new project that serves, tests and builds at once'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "dockerfile" -d 'Write a Dockerfile for a folder of models'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "build" -d 'Build an image of a folder of models'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "manifest" -d 'Print a manifest that runs an image of a folder'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "doctor" -d 'Check what a folder needs to be served, and say what to do'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "config" -d 'Inspect settings'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "inspect" -d 'Print what a scikit-learn artefact holds, and whether it is served natively'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "completions" -d 'Print the completions of a shell'
complete -c mlserver -n "__fish_mlserver_needs_command" -f -a "man" -d 'Write the manual pages into a folder'
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -l strict -d 'Refuse unknown keys in settings files'
complete -c mlserver -n "__fish_mlserver_using_subcommand start" -s h -l help -d 'Print help'
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
