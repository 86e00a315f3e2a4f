"""Grammars in lark's notation, as agents send them or as they are awkward, for lark_golden.py."""

APPLY_PATCH = r'''start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
'''

GRAMMARS = {
    "apply_patch": APPLY_PATCH,
    "arithmetic": r'''
start: expr
expr: term (SP ADD SP term)* -> add
term: factor (SP MUL SP factor)* -> mul
factor: INT
SP: " "
ADD: "+"
MUL: "*"
%import common.INT
''',
    "left recursion": r'''
?start: sum
?sum: product | sum "+" product -> add | sum "-" product -> sub
?product: atom | product "*" atom -> mul | product "/" atom -> div
?atom: NUMBER -> number | "-" atom -> neg | NAME -> var | "(" sum ")"
%import common.CNAME -> NAME
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
''',
    "json": r'''
?start: value
?value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: ESCAPED_STRING ":" value
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
''',
    "sql": r'''
start: "select"i _WS columns _WS "from"i _WS NAME (_WS "where"i _WS condition)? ";"
columns: "*" | NAME ("," _WS? NAME)*
condition: NAME _WS? OP _WS? (NUMBER | STRING)
OP: "=" | "<" | ">" | "<>"
STRING: /'[^'\n]*'/
NAME: /[a-z_][a-z0-9_]*/i
_WS: / +/
%import common.NUMBER
''',
    "lists": r'''
start: item+
item: "(" item* ")" | WORD ";"
%import common (WORD, NEWLINE)
%ignore " "
%ignore NEWLINE
''',
    "counts": r'''
start: DATE ("," DATE) ~ 0..2 | time~1
DATE: DIGIT~4 "-" DIGIT~2 "-" DIGIT~2
time: DIGIT ~ 1..2 ":" DIGIT~2 ["am" | "pm"]
%import common.DIGIT
''',
    "balanced": r'''
start: s
s: "a" s "b" s |
''',
    "ambiguous": r'''
start: e
e: e "+" e | e "*" e | "x" | "(" e ")"
''',
    "priorities": r'''
start.2: (A | B | c)+
A.10: "a".."f"
B.-1: /[a-z]/ /[0-9]/
!c: "end"i "!"?
''',
    "comments": r'''
// a comment
start: _line* // another
     | "none"
_line: KEY "=" VALUE? _NL  # not this kind
KEY: ("a".."z" | "_")+
VALUE: /[^\n#]+/
_NL: (/#[^\n]*/? /\r?\n/)+
''',
    "unicode": r'''
start: GREETING (", " NAME)? MARK
GREETING: "h\u00e9"i | "\U0001F600" | "\x41\t"
NAME: /[a-z\u00e9-\u00eb]{2,5}/i
MARK: "!" | "?" | "\"" | "\\"
''',
    "code": r'''
start: stmt*
stmt: "let" NAME "=" expr ";" | "if" expr "{" stmt* "}" ("else" "{" stmt* "}")?
expr: NAME | INT | expr OP expr | "f" "(" (expr ("," expr)*)? ")"
OP: "+" | "==" | "&&"
NAME: /[g-z]/
%import common.INT
%import common.WS
%import common.C_COMMENT
%ignore WS
%ignore C_COMMENT
''',
    "nested optional": r'''
start: "s" a? b* "e"
a: [b] ["x"]
b: c? | "(" a ")"
c: "y" ["z"]
''',
}
