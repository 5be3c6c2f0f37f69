# SPDX-License-Identifier: Apache-2.0
# fish completion for cay(1).  Commands and options are what --help says.

function __cay_files_command
    set -l commands (cay files --help | string match -rg '^  ([a-z]+) ')
    for word in (commandline -opc)[3..]
        if contains -- $word $commands
            echo $word
            return 0
        end
    end
    return 1
end

function __cay_options
    begin
        cay files --help
        set -l command (__cay_files_command); and cay files $command --help
    end | string match -rg -- '^  .*(--[a-z-]+)'
end

complete -c cay -f
complete -c cay -n __fish_use_subcommand -a '(cay --help | string match -rg "^  ([a-z]+)  ")'
complete -c cay -n '__fish_seen_subcommand_from files; and not __cay_files_command' \
    -a '(cay files --help | string match -rg "^  ([a-z]+) ")'
complete -c cay -n '__fish_seen_subcommand_from files' -a '(__cay_options)'
complete -c cay -n '__fish_seen_subcommand_from files' -l config -l edits -rF
complete -c cay -n '__fish_seen_subcommand_from files' -l base -xa '(__fish_complete_directories)'
complete -c cay -n '__fish_seen_subcommand_from files' -s o -l output -xa 'text json'
complete -c cay -n '__fish_seen_subcommand_from files' -l approve -xa 'ask yes no'
