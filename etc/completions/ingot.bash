# ingot.bash: completion of ingot(1) for bash 3.2 and later.
#
# Commands and options are read from the program's own help, so they are those of the
# version that is installed; names of models from `ingot models --names`.

# Its commands, a line each.
_ingot_commands()
{
	"$1" help 2>/dev/null | awk '/^commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }'
}

# _ingot_options PROGRAM COMMAND: its options, a line each: the option, and what its value
# is called if it takes one.
_ingot_options()
{
	"$1" help "$2" 2>/dev/null | awk '
		/^options:/ { on = 1; next }
		on && $1 ~ /^-/ {
			long = $1 ~ /,$/ ? $2 : $1
			value = $1 ~ /,$/ ? $3 : $2
			if (value !~ /^[A-Z]+$/) value = ""
			print long, value
			if ($1 ~ /,$/) print substr($1, 1, 2), value
		}'
}

# The agents that it can start, a line each.
_ingot_agents()
{
	"$1" launch 2>/dev/null | awk 'NR > 1 { print $1 }'
}

# _ingot_offer WORD…: those that begin with what is typed.  Where bash breaks words at a
# colon only the part behind the last one is replaced.
_ingot_offer()
{
	local word rest=${COMP_LINE:0:COMP_POINT}
	rest=${rest##*[[:space:]]}
	local before=${rest%"$_ingot_current"}
	for word; do
		[[ $word == "$rest"* ]] && COMPREPLY+=("${word#"$before"}")
	done
}

# Files that begin with what is typed.
_ingot_files()
{
	local name
	compopt -o filenames 2>/dev/null
	while read -r name; do COMPREPLY+=("$name"); done < <(compgen -f -- "$1")
}

_ingot()
{
	local program=$1 _ingot_current=$2 command=${COMP_WORDS[1]} i n=0 option value wanted= names
	local IFS=$' \t\n'
	COMPREPLY=()
	if [[ $COMP_CWORD -eq 1 ]]; then
		_ingot_offer $(_ingot_commands "$program") --help --version
		return
	fi
	case $command in
	help)
		_ingot_offer $(_ingot_commands "$program")
		return
		;;
	-*) return ;;
	esac
	# What the option before the cursor takes, and how many arguments there are before it.
	while read -r option value; do
		[[ -n $value && ${COMP_WORDS[COMP_CWORD - 1]} == "$option" ]] && wanted=$value
	done <<<"$(_ingot_options "$program" "$command")"
	case $wanted in
	FILE)
		_ingot_files "$2"
		return
		;;
	DIR)
		compopt -o filenames 2>/dev/null
		while read -r value; do COMPREPLY+=("$value"); done < <(compgen -d -- "$2")
		return
		;;
	NAME)
		_ingot_offer $("$program" models --names served 2>/dev/null)
		return
		;;
	WHICH)
		_ingot_offer known served
		return
		;;
	COLUMN)
		_ingot_offer model key client
		return
		;;
	TYPE)
		_ingot_offer $("$program" convert --types 2>/dev/null)
		return
		;;
	?*) return ;;
	esac
	if [[ $2 == -* ]]; then
		names=
		while read -r option value; do names="$names $option"; done \
			<<<"$(_ingot_options "$program" "$command")"
		_ingot_offer $names
		return
	fi
	case $command in
	run | chat) _ingot_offer $("$program" models --names served 2>/dev/null) ;;
	pull) _ingot_offer $("$program" models --names known 2>/dev/null) ;;
	backup | convert) _ingot_files "$2" ;;
	launch) [[ $COMP_CWORD -eq 2 ]] && _ingot_offer $(_ingot_agents "$program") ;;
	keys) [[ $COMP_CWORD -eq 2 ]] && _ingot_offer add list remove ;;
	models)
		if [[ $COMP_CWORD -eq 2 ]]; then
			_ingot_offer load unload
		elif [[ ${COMP_WORDS[2]} == load || ${COMP_WORDS[2]} == unload ]]; then
			_ingot_offer $("$program" models --names served 2>/dev/null)
		fi
		;;
	esac
	return 0
}

complete -F _ingot ingot
