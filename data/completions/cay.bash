# SPDX-License-Identifier: Apache-2.0
# bash completion for cay(1).  Commands and options are what --help says.

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

_cay() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} sub='' config='' word i
    COMPREPLY=()

    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W \
            "$(cay --help | sed -n 's/^  \([a-z]*\)  .*/\1/p') --help --version" -- "$current")
        return
    fi
    [[ $command == files ]] || return

    local commands
    commands=$(cay files --help | sed -n 's/^  \([a-z]\{1,\}\) .*/\1/p')
    for ((i = 2; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        [[ ${COMP_WORDS[i - 1]} == --config ]] && config=$word
        [[ ! $sub && $'\n'$commands$'\n' == *$'\n'"$word"$'\n'* ]] && sub=$word
    done

    case $previous in
    --config | --edits)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames
        ;;
    --base)
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        compopt -o filenames
        ;;
    -o | --output) mapfile -t COMPREPLY < <(compgen -W 'text json' -- "$current") ;;
    --approve) mapfile -t COMPREPLY < <(compgen -W 'ask yes no' -- "$current") ;;
    *)
        if [[ $current == -* ]]; then
            word=$({ cay files --help; [[ $sub ]] && cay files "$sub" --help; } |
                sed -n 's/^  .*\(--[a-z-]*\).*/\1/p')
            mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
        elif [[ ! $sub ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
        else
            local IFS=$'\n'
            mapfile -t COMPREPLY < <(_cay_paths "$config" "$current" |
                while read -r word; do [[ $word == "$current"* ]] && echo "$word"; done | sort -u)
            compopt -o filenames
        fi
        ;;
    esac
}

complete -F _cay cay
