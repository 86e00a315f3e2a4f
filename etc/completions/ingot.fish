# ingot.fish: completion of ingot(1) for fish.
#
# Commands and options are read from the program's own help, so they are those of the
# version that is installed; names of models from `ingot models --names`.

function __ingot_commands --argument-names program
    $program help 2>/dev/null | awk '
        /^commands:/ { on = 1; next }
        /^$/ { on = 0 }
        on { name = $1; $1 = ""; sub(/^ /, ""); print name "\t" $0 }'
end

# A line each: option, tab, what its value is called or -, tab, help.
function __ingot_options --argument-names program command
    $program help $command 2>/dev/null | awk '
        /^options:/ { on = 1; next }
        on && $1 ~ /^-/ {
            at = $1 ~ /,$/ ? 2 : 1
            value = $(at + 1) ~ /^[A-Z]+$/ ? $(at + 1) : "-"
            text = ""
            for (i = at + (value == "-" ? 1 : 2); i <= NF; i++) text = text (text ? " " : "") $i
            print $at "\t" value "\t" text
            if (at == 2) print substr($1, 1, 2) "\t" value "\t" text
        }'
end

function __ingot_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program $words[1]
    if test (count $words) -eq 1
        __ingot_commands $program
        printf '%s\n' --help --version
        return
    end
    set -l command $words[2]
    if test "$command" = help
        __ingot_commands $program
        return
    end
    set -l wanted
    for line in (__ingot_options $program $command)
        set -l parts (string split \t -- $line)
        if test "$parts[1]" = "$words[-1]"; and test "$parts[2]" != -
            set wanted $parts[2]
        end
    end
    switch "$wanted"
        case FILE
            __fish_complete_path $current
        case DIR
            __fish_complete_directories $current
        case NAME
            $program models --names served 2>/dev/null
        case WHICH
            printf '%s\n' known served
        case COLUMN
            printf '%s\n' model key client
        case TYPE
            $program convert --types 2>/dev/null
        case ''
            if string match -q -- '-*' $current
                for line in (__ingot_options $program $command)
                    set -l parts (string split \t -- $line)
                    printf '%s\t%s\n' $parts[1] $parts[3]
                end
                return
            end
            switch "$command"
                case run chat
                    $program models --names served 2>/dev/null
                case pull
                    $program models --names known 2>/dev/null
                case backup convert
                    __fish_complete_path $current
                case launch
                    test (count $words) -eq 2; and $program launch 2>/dev/null | awk 'NR > 1 { print $1 }'
                case keys
                    test (count $words) -eq 2; and printf '%s\n' add list remove
                case models
                    if test (count $words) -eq 2
                        printf '%s\n' load unload
                    else if contains -- $words[3] load unload
                        $program models --names served 2>/dev/null
                    end
            end
    end
end

complete -c ingot -f -a '(__ingot_complete)'
