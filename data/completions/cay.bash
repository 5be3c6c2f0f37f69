# SPDX-License-Identifier: Apache-2.0
# bash completion for cay(1).  Commands and options are what --help says.

_cay_commands() { # of `cay` or `cay files`: "  run  ..." and "  ls, inspect  ..."
    "$@" --help | sed -n 's/^  \([a-z][a-z, ]*[a-z]\) \{1,\}[A-Z[].*/\1/p; s/^  \([a-z]*\)  .*/\1/p' |
        tr -s ', ' '\n'
}

_cay_help() { { "$@" --help-all || "$@" --help; } 2>/dev/null; }

_cay_options() { _cay_help "$@" | sed -n 's/^  .*\(--[a-z-]*\).*/\1/p'; }

_cay_valued() { # options that take a value
    _cay_help "$@" |
        sed -n 's/^ \{2,\}\(-[a-z], \)\{0,1\}\(--[a-z-]*\) [^ ].*/\1\2/p' | tr -s ', ' '\n'
}

_cay_sandboxes() { # ids and names
    cay ls 2>/dev/null |
        awk 'NR > 1 { print $1; if ($2 != "-") print $2 }'
}

_cay_tags() { # of the sandbox $1
    cay ps -o json -- "$1" 2>/dev/null | grep -o '"tag":"[^"]*"' | cut -d '"' -f 4
}

_cay_paths() { # what the policy $1 has at the word $2
    [[ $1 ]] || return
    if [[ $2 == */* ]]; then
        local directory=${2%/*}
        cay files --config "$1" --approve no list --all --max 1000 --pattern '*' \
            -- "${directory:-/}" 2>/dev/null
    else
        cay files --config "$1" roots 2>/dev/null | cut -c4-
    fi
}

_cay_reply() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current"); }
_cay_reply_files() { # -f or -d
    mapfile -t COMPREPLY < <(compgen "$1" -- "$current")
    compopt -o filenames
}

_cay_value() { # of the option before the word; false if it takes none we know
    case $previous in
    --config | --edits | --from-tar | --from-oci) _cay_reply_files -f ;;
    --base | --from-dir | --root) _cay_reply_files -d ;;
    -v | --volume)
        _cay_reply_files -f
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(
            compgen -S : -W "$(cay volume ls -q 2>/dev/null)" -- "$current")
        ;;
    --template) _cay_reply "$(cay template ls -q 2>/dev/null)" ;;
    -o | --output) _cay_reply 'text json' ;;
    --approve) _cay_reply 'ask yes no queue' ;;
    --network) _cay_reply 'none host rules open' ;;
    --allow | --deny) _cay_reply 'pypi npm debian crates go github anthropic openai' ;;
    --storage) _cay_reply 'memory disk' ;;
    --roots) _cay_reply 'none ro rw' ;;
    --require) _cay_reply 'user pid mount network ipc uts cgroup seccomp landlock memory pids cpu disk' ;;
    -u | --user)
        case ${COMP_WORDS[1]} in
        session) ;;
        setup) _cay_reply "$(compgen -u)" ;;
        *) _cay_reply 'user root' ;;
        esac
        ;;
    -s | --signal) _cay_reply 'TERM INT HUP KILL STOP CONT USR1 USR2' ;;
    *) return 1 ;;
    esac
}

_cay_files() {
    local commands sub='' config='' word i
    commands=$(_cay_commands cay files)
    for ((i = 2; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        [[ ${COMP_WORDS[i - 1]} == --config ]] && config=$word
        [[ ! $sub && $'\n'$commands$'\n' == *$'\n'"$word"$'\n'* ]] && sub=$word
    done
    if [[ $current == -* ]]; then
        _cay_reply "$(_cay_options cay files; [[ $sub ]] && _cay_options cay files "$sub")"
    elif [[ ! $sub ]]; then
        _cay_reply "$commands"
    else
        local IFS=$'\n'
        mapfile -t COMPREPLY < <(_cay_paths "$config" "$current" |
            while read -r word; do [[ $word == "$current"* ]] && echo "$word"; done | sort -u)
        compopt -o filenames
    fi
}

_cay_template() {
    if [[ $current == -* ]]; then
        _cay_reply "$(_cay_options cay template "${COMP_WORDS[2]}")"
    elif ((COMP_CWORD == 2)); then
        _cay_reply 'create ls rm'
    elif [[ ${COMP_WORDS[2]} == rm ]]; then
        _cay_reply "$(cay template ls -q 2>/dev/null | grep -vx host)"
    fi
}

_cay_snapshot() {
    if [[ $current == -* ]]; then
        _cay_reply "$(_cay_options cay snapshot "${COMP_WORDS[2]}")"
    elif ((COMP_CWORD == 2)); then
        _cay_reply 'create ls inspect export import rm'
    elif [[ ${COMP_WORDS[2]} == inspect || ${COMP_WORDS[2]} == rm ]] ||
        [[ ${COMP_WORDS[2]} == export && $COMP_CWORD -eq 3 ]]; then
        _cay_reply "$(cay snapshot ls -q 2>/dev/null)"
    fi
}

_cay_volume() {
    if [[ $current == -* ]]; then
        _cay_reply "$(_cay_options cay volume "${COMP_WORDS[2]}")"
    elif ((COMP_CWORD == 2)); then
        _cay_reply 'create ls rm cp'
    elif [[ ${COMP_WORDS[2]} == rm ]]; then
        _cay_reply "$(cay volume ls -q 2>/dev/null)"
    elif [[ ${COMP_WORDS[2]} == cp ]]; then
        _cay_reply_files -f
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(
            compgen -S : -W "$(cay volume ls -q 2>/dev/null)" -- "$current")
        compopt -o nospace
    fi
}

_cay_approve() {
    if [[ $current == -* ]]; then
        _cay_reply "$(_cay_options cay approve "${COMP_WORDS[2]}")"
    elif ((COMP_CWORD == 2)); then
        _cay_reply 'list show allow deny remember rules request watch notify'
    elif [[ ${COMP_WORDS[2]} =~ ^(show|allow|deny|remember)$ ]]; then
        _cay_reply "$(cay approve list -q 2>/dev/null)"
    fi
}

_cay_config() {
    if [[ $current == -* ]]; then
        _cay_reply "$(_cay_options cay config "${COMP_WORDS[2]}")"
    elif ((COMP_CWORD == 2)); then
        _cay_reply 'check schema'
    elif [[ ${COMP_WORDS[2]} == check ]]; then
        _cay_reply_files -f
    fi
}

_cay_explain() {
    if [[ $current == -* ]]; then
        _cay_reply "$(_cay_options cay explain "${COMP_WORDS[2]}")"
    elif ((COMP_CWORD == 2)); then
        _cay_reply network
    fi
}

_cay_session() {
    if [[ $current == -* ]]; then
        _cay_reply "$(_cay_options cay session "${COMP_WORDS[2]}")"
    elif ((COMP_CWORD == 2)); then
        _cay_reply 'ls show start pause resume stop rm'
    elif [[ $previous != --user && ${COMP_WORDS[2]} != ls ]]; then
        _cay_reply "$(cay session ls -q 2>/dev/null)"
    fi
}

# Into `words`: what is before the current one and neither option nor value of one.  False
# if the current one is such a value, or belongs to the command that is to run.
_cay_arguments() {
    local valued i word value=''
    valued=$'\n'$(_cay_valued cay "$command")$'\n'
    words=()
    for ((i = 2; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $value ]]; then
            value=''
        elif [[ $word == -- ]]; then
            [[ $command == run || $command == exec ]] && inside=yes
        elif [[ $word == -* ]]; then
            [[ $valued == *$'\n'"$word"$'\n'* ]] && value=yes
        else
            words+=("$word")
        fi
    done
    [[ $command == run && ${#words[@]} -gt 0 ]] && inside=yes
    [[ $command == exec && ${#words[@]} -gt 1 ]] && inside=yes
    [[ ! $value ]]
}

_cay_sandbox() {
    local words inside='' ids
    _cay_arguments || return
    if [[ $current == -* && ! $inside ]]; then
        _cay_reply "$(_cay_options cay "$command")"
        return
    fi
    case $command in
    help) _cay_reply "$(_cay_commands cay)" ;;
    run) ((${#words[@]})) || _cay_reply "$(compgen -c -- "$current")" ;;
    exec | logs)
        case ${#words[@]} in
        0) _cay_reply "$(_cay_sandboxes)" ;;
        1) [[ $command == logs ]] && _cay_reply "$(_cay_tags "${words[0]}")" ||
            _cay_reply "$(compgen -c -- "$current")" ;;
        esac
        ;;
    agent) _cay_reply "$(cay agent --list 2>/dev/null | awk 'NR > 1 { print $1 }')" ;;
    kill)
        if ((${#words[@]})) && [[ " ${COMP_WORDS[*]} " == *' '@(-s|--signal)' '* ]]; then
            _cay_reply "$(_cay_tags "${words[0]}")"
        else
            _cay_reply "$(_cay_sandboxes)"
        fi
        ;;
    cp)
        _cay_reply_files -f
        ids=$(cay ls -q 2>/dev/null | sed 's/$/:/')
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "$ids" -- "$current")
        ;;
    shell | inspect | ps | network | events | forward | port | checkpoint | rollback | checkpoints | fork | diff | cat | put | pause | \
        resume | start | rm)
        _cay_reply "$(_cay_sandboxes)"
        ;;
    esac
}

_cay() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]}
    COMPREPLY=()

    if ((COMP_CWORD == 1)); then
        _cay_reply "$(_cay_commands cay) --help --version"
        return
    fi
    _cay_value && return
    case $command in
    approve) _cay_approve ;;
    config) _cay_config ;;
    explain) _cay_explain ;;
    files) _cay_files ;;
    session) _cay_session ;;
    snapshot) _cay_snapshot ;;
    template) _cay_template ;;
    volume) _cay_volume ;;
    *) _cay_sandbox ;;
    esac
}

complete -F _cay cay
