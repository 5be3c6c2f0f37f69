# SPDX-License-Identifier: Apache-2.0
# fish completion for cay(1).  Commands and options are what --help says.

function __cay_commands
    $argv --help | string match -rg '^  ([a-z]+(?:, [a-z]+)*) +[A-Z[]' | string split ', '
end

function __cay_options
    begin
        $argv --help-all; or $argv --help
    end 2>/dev/null | string match -rg -- '^  .*(--[a-z-]+)'
end

function __cay_files_command
    set -l commands (__cay_commands cay files)
    for word in (commandline -opc)[3..]
        if contains -- $word $commands
            echo $word
            return 0
        end
    end
    return 1
end

function __cay_options_here
    set -l words (commandline -opc)
    switch "$words[2]"
        case files
            __cay_options cay files
            set -l command (__cay_files_command); and __cay_options cay files $command
        case approve
            __cay_options cay approve $words[3]
        case config
            __cay_options cay config $words[3]
        case explain
            __cay_options cay explain $words[3]
        case session
            __cay_options cay session $words[3]
        case template
            __cay_options cay template $words[3]
        case snapshot
            __cay_options cay snapshot $words[3]
        case volume
            __cay_options cay volume $words[3]
        case '*'
            __cay_options cay $words[2]
    end
end

# The words after the command, without options.
function __cay_words
    string match -v -- '-*' (commandline -opc)[3..]
end

function __cay_takes # whether the command has this option
    contains -- --$argv[1] (__cay_options_here)
end

function __cay_tags # of the sandbox that was named
    cay ps -o json -- (__cay_words)[1] 2>/dev/null | string match -arg '"tag":"([^"]*)"'
end

function __cay_sandboxes # ids and names
    cay ls 2>/dev/null | awk 'NR > 1 { print $1; if ($2 != "-") print $2 }'
end

set -l with_id exec shell inspect ps logs network events forward port checkpoint rollback checkpoints fork diff cat put pause resume start kill rm
set -l layers user pid mount network ipc uts cgroup seccomp landlock memory pids cpu disk

complete -c cay -f
complete -c cay -n __fish_use_subcommand -a '(__cay_commands cay)'
complete -c cay -n 'not __fish_use_subcommand' -a '(__cay_options_here)'
complete -c cay -n '__fish_seen_subcommand_from files; and not __cay_files_command' \
    -a '(__cay_commands cay files)'
complete -c cay -n '__fish_seen_subcommand_from agent; and test (count (__cay_words)) -eq 0' \
    -a '(cay agent --list 2>/dev/null | awk \'NR > 1 { print $1 }\')'
complete -c cay -n '__fish_seen_subcommand_from help' -a '(__cay_commands cay)'
complete -c cay -n "not __fish_seen_subcommand_from session snapshot template volume explain; and __fish_seen_subcommand_from $with_id; and not __fish_seen_subcommand_from (__cay_sandboxes)" \
    -a '(__cay_sandboxes)'
complete -c cay -n '__fish_seen_subcommand_from logs kill; and test (count (__cay_words)) -gt 0' \
    -a '(__cay_tags)'
complete -c cay -n '__fish_seen_subcommand_from cp; and not __fish_seen_subcommand_from volume' -Fa '(__cay_sandboxes | string replace -r \$ :)'
complete -c cay -n '__fish_seen_subcommand_from config; and not __fish_seen_subcommand_from check schema' \
    -a 'check schema'
complete -c cay -n '__fish_seen_subcommand_from config; and __fish_seen_subcommand_from check' -F
complete -c cay -n '__fish_seen_subcommand_from approve; and not __fish_seen_subcommand_from list show allow deny remember rules request watch notify' \
    -a 'list show allow deny remember rules request watch notify'
complete -c cay -n '__fish_seen_subcommand_from approve; and __fish_seen_subcommand_from show allow deny remember' \
    -a '(cay approve list -q 2>/dev/null)'
complete -c cay -n '__fish_seen_subcommand_from explain; and not __fish_seen_subcommand_from network' \
    -a network
complete -c cay -n '__fish_seen_subcommand_from session; and not __fish_seen_subcommand_from ls show start pause resume stop rm' \
    -a 'ls show start pause resume stop rm'
complete -c cay -n '__fish_seen_subcommand_from session; and __fish_seen_subcommand_from show start pause resume stop rm' \
    -a '(cay session ls -q 2>/dev/null)'
complete -c cay -n '__fish_seen_subcommand_from template; and not __fish_seen_subcommand_from create ls rm' \
    -a 'create ls rm'
complete -c cay -n '__fish_seen_subcommand_from template; and __fish_seen_subcommand_from rm' \
    -a '(cay template ls -q 2>/dev/null | string match -v host)'
complete -c cay -n '__fish_seen_subcommand_from snapshot; and not __fish_seen_subcommand_from create ls inspect export import rm' \
    -a 'create ls inspect export import rm'
complete -c cay -n '__fish_seen_subcommand_from snapshot; and __fish_seen_subcommand_from inspect export rm' \
    -a '(cay snapshot ls -q 2>/dev/null)'
complete -c cay -n '__fish_seen_subcommand_from volume; and not __fish_seen_subcommand_from create ls rm cp' \
    -a 'create ls rm cp'
complete -c cay -n '__fish_seen_subcommand_from volume; and __fish_seen_subcommand_from rm' \
    -a '(cay volume ls -q 2>/dev/null)'
complete -c cay -n '__fish_seen_subcommand_from volume; and __fish_seen_subcommand_from cp' \
    -Fa '(cay volume ls -q 2>/dev/null | string replace -r \$ :)'
complete -c cay -n '__cay_takes config' -l config -rF
complete -c cay -n '__cay_takes edits' -l edits -rF
complete -c cay -n '__cay_takes from-tar' -l from-tar -rF
complete -c cay -n '__cay_takes from-oci' -l from-oci -rF
complete -c cay -n '__cay_takes base' -l base -xa '(__fish_complete_directories)'
complete -c cay -n '__cay_takes root' -l root -xa '(__fish_complete_directories)'
complete -c cay -n '__cay_takes from-dir' -l from-dir -xa '(__fish_complete_directories)'
complete -c cay -n '__cay_takes volume' -s v -l volume -rFa '(cay volume ls -q 2>/dev/null | string replace -r \$ :)'
complete -c cay -n '__cay_takes template' -l template -xa '(cay template ls -q 2>/dev/null)'
complete -c cay -n '__cay_takes output' -s o -l output -xa 'text json'
complete -c cay -n '__cay_takes approve' -l approve -xa 'ask yes no queue'
complete -c cay -n '__cay_takes network' -l network -xa 'none host rules open'
complete -c cay -n '__cay_takes allow' -l allow -xa 'pypi npm debian crates go github anthropic openai'
complete -c cay -n '__cay_takes deny' -l deny -xa 'pypi npm debian crates go github anthropic openai'
complete -c cay -n '__cay_takes secret' -l secret -x
complete -c cay -n '__cay_takes secret-for' -l secret-for -x
complete -c cay -n '__cay_takes storage' -l storage -xa 'memory disk'
complete -c cay -n '__cay_takes require' -l require -xa "$layers"
complete -c cay -n '__cay_takes user; and not __fish_seen_subcommand_from setup' -s u -l user \
    -xa 'user root'
complete -c cay -n '__fish_seen_subcommand_from setup' -s u -l user -xa '(__fish_complete_users)'
complete -c cay -n '__cay_takes signal' -s s -l signal -xa 'TERM INT HUP KILL STOP CONT USR1 USR2'
