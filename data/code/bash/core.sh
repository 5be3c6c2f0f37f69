# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The driver of a bash context: sources code in this shell and reports on descriptor 3.
# Output goes to descriptors 1 and 2.  docs/design/code-drivers.md describes the lines.
#
# The code takes the place of the channel at descriptor 3 while it runs, so that no child
# speaks on the channel.  It is sourced at the top level: in a function `declare` would make
# local variables.  SIGINT and `set -e` end an execution and not the shell: their traps set a
# DEBUG trap that returns 2, with which bash leaves every function and the sourced code.

cay_count=0 cay_status=0 cay_flags='' cay_running='' cay_cause=''

# Nearly every line is {"type":"execute","id":7,"code":"...","env":{}}, whose code ends at the
# last quotes: sets cay_id and cay_code.  Fails for other lines, and for long ones, where
# bash is slow to replace quotes.
cay_parse_short() {
    [[ ${#1} -lt 4096 && $1 == '{"type":"execute","id":'*'","env":{}}' ]] || return 1
    cay_code=${1#*,\"id\":}
    cay_id=${cay_code%%,*}
    cay_code=${cay_code#*,\"code\":\"}
    cay_code=${cay_code%\",\"env\":{\}\}}
    [[ $cay_code != *\\* ]] || builtin printf -v cay_code %b "${cay_code//\\\"/\"}"
}

# Splits a line into its strings, and what is before each: no JSON parser is in bash.
cay_parse() {
    local - IFS='"' piece quoted='' end
    set -f
    cay_strings=() cay_before=()
    # shellcheck disable=SC2206
    local -a pieces=($1) text
    for piece in "${pieces[@]}"; do
        if [[ ! $quoted ]]; then
            cay_before+=("$piece") quoted=1 text=()
            continue
        fi
        end=''
        [[ $piece == *\\ ]] && end=${piece##*[!\\]}
        if ((${#end} % 2)); then # the quote that ended this piece is escaped
            text+=("${piece%\\}")
        else
            text+=("$piece")
            builtin printf -v piece %b "${text[*]}"
            cay_strings+=("$piece") quoted=''
        fi
    done
}

# Sets the variables of this call, and remembers the old ones.
cay_set_env() {
    local name=$1
    [[ $name =~ ^[A-Za-z_][A-Za-z0-9_]*$ && ! -v cay_old[$name] ]] || return 0
    if [[ -v $name ]]; then
        cay_old[$name]=${!name}
        [[ ${!name@a} == *x* ]] || cay_plain+=("$name")
    else
        cay_new+=("$name")
    fi
    export "$name=$2"
}

cay_restore_env() {
    local name
    for name in "${!cay_old[@]}"; do
        builtin printf -v "$name" %s "${cay_old[$name]}"
    done
    for name in "${cay_plain[@]}"; do
        export -n "${name?}"
    done
    for name in "${cay_new[@]}"; do
        unset -v "$name"
    done
}

# Reads the next execution; fails at the end of the channel.
cay_next() {
    local line silent='' at=6 IFS=' '
    unset -v cay_old
    declare -gA cay_old=()
    cay_new=() cay_plain=() cay_cause='' cay_errexit=''
    IFS= builtin read -r -u 3 line || return 1
    if ! cay_parse_short "$line"; then
        cay_parse "$line"
        cay_id=${cay_before[3]//[!0-9]/}
        cay_code=${cay_strings[4]}
        while [[ ${cay_before[at]} != *'}'* && $at -lt ${#cay_strings[@]} ]]; do
            cay_set_env "${cay_strings[at]}" "${cay_strings[at + 1]}"
            at=$((at + 2))
        done
        [[ ${cay_strings[at]-} == silent && ${cay_before[at + 1]} == :true* ]] && silent=1
    fi
    [[ $silent ]] || builtin printf '{"type":"count","count":%d}\n' $((cay_count += 1)) >&3
    cay_running=1
}

cay_error() {
    builtin printf '{"type":"error","name":"%s","value":"%s","traceback":"%s"}\n' "$@" >&3
}

cay_finish() {
    local IFS=' '
    cay_running=''
    cay_stop_unwinding
    cay_restore_env
    # SIGINT ends the command first, and errexit sees that before the trap runs.
    [[ $cay_cause == errexit* && $cay_status == 130 ]] && cay_cause=interrupt
    case $cay_cause in
    interrupt) cay_error KeyboardInterrupt '' '' ;;
    errexit*) cay_error ExitStatus "$cay_status" "line ${cay_cause#errexit }: exit status $cay_status (set -e)" ;;
    *) ((cay_status == 0)) || cay_error ExitStatus "$cay_status" '' ;;
    esac
    builtin printf '{"type":"done","id":%s}\n' "$cay_id" >&3
}

# --- Ending the code from a trap ---------------------------------------------------------------

cay_unwind() {
    ((${#FUNCNAME[@]} > 1)) && return 2
    cay_stop_unwinding
}

cay_start_unwinding() {
    shopt -s extdebug
    trap cay_unwind DEBUG
}

cay_stop_unwinding() {
    if shopt -q extdebug; then
        trap - DEBUG
        shopt -u extdebug
    fi
    set -E
}

cay_on_interrupt() {
    if [[ $cay_running && ! $cay_cause ]]; then
        cay_cause=interrupt cay_status=130
        [[ $- == *e* ]] && cay_errexit=e
        set +e # the command that SIGINT ended has failed
        cay_start_unwinding
    fi
}

# Does what errexit does, except that only a subshell exits.
cay_on_error() {
    [[ $- == *e* ]] || return 0
    ((BASHPID == $$)) || exit "$1"
    set +e
    cay_errexit=e
    if [[ ! $cay_cause ]]; then
        cay_cause="errexit $2" cay_status=$1
        ((${#FUNCNAME[@]} > 1)) && cay_start_unwinding
    fi
}

# --- The loop ----------------------------------------------------------------------------------

builtin printf '{"type":"ready","version":"%s"}\n' "${BASH_VERSION%%(*}" >&3
set -E
# Code that breaks or continues a loop that is not its own does so with these.
while :; do while :; do
    [[ ! $cay_running ]] || cay_finish
    trap cay_on_interrupt INT
    cay_next || exit 0
    trap 'cay_on_error $? $LINENO' ERR
    # shellcheck disable=SC1091
    source /dev/fd/3 3<<<"${cay_flags:+set -$cay_flags; }$cay_code"
    {
        cay_last=$?
        [[ $cay_cause ]] || cay_status=$cay_last
        cay_flags=${-//[!euxv]/}
        set +euxv
        cay_flags+=$cay_errexit
    } 2>/dev/null
done; done
