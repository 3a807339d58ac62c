
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
            cand init 'Make a new project that serves, tests and builds at once'
            cand dockerfile 'Write a Dockerfile for a folder of models'
            cand build 'Build an image of a folder of models'
            cand manifest 'Print a manifest that runs an image of a folder'
            cand doctor 'Check what a folder needs to be served, and say what to do'
            cand config 'Inspect settings'
            cand inspect 'Print what a scikit-learn artefact holds, and whether it is served natively'
            cand completions 'Print the completions of a shell'
            cand man 'Write the manual pages into a folder'
        }
        &'mlserver;start'= {
            cand --strict 'Refuse unknown keys in settings files'
            cand -h 'Print help'
            cand --help 'Print help'
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
