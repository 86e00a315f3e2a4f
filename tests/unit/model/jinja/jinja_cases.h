/* jinja_cases.h: made by tests/golden/template/make_cases.py; don't edit. */
#define X                                                                                          \
	"{\"s\": \"  H\\u00e9llo W\\u00f6rld \\n\", \"l\": [3, 1, 2], \"d\": {\"b\": 1, \""        \
	"a\": [1.5, null, true], \"C\": \"x'y\"}, \"w\": [\"b\", \"A\", \"c\", \"a\"], \"n"        \
	"\": null, \"t\": true, \"i\": 7, \"f\": 2.5, \"e\": \"\", \"el\": [], \"ed\": {},"        \
	" \"m\": [{\"role\": \"user\", \"content\": \"hi\", \"k\": {\"z\": 1}}, {\"role\":"        \
	" \"assistant\", \"content\": \"yo\"}], \"tools\": [{\"name\": \"f\", \"p\": {\"x\""       \
	": \"<\\\"\\u00e9\\\\\\ud83d\\ude00\\n\\t\\u0001\\u007f>\"}}]}"

static const struct good good[] = {
	{ "{{ 1 }} {{ 1.0 }} {{ true }} {{ none }} {{ 'a' }} {{ [1, 'b', none] }} {{ (1,) }}"
	  " {{ () }} {{ {'a': 1, 2: 'x'} }}",
	  X, "1 1.0 True None a [1, 'b', None] (1,) () {'a': 1, 2: 'x'}" },
	{ "{{ 1e16 }} {{ 1e15 }} {{ 123456789.125 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1e22 }} {"
	  "{ 1.5e-7 }} {{ -0.0 }} {{ 0.1 + 0.2 }}",
	  X,
	  "1e+16 1000000000000000.0 123456789.125 0.0001 1e-05 1e+22 1.5e-07 -0.0 0.30000000"
	  "000000004" },
	{ "{{ 100.0 }} {{ 1e5 }} {{ 1_000 }} {{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 2e3 }} {{ "
	  "1.25e+2 }}",
	  X, "100.0 100000.0 1000 31 15 5 2000.0 125.0" },
	{ "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2"
	  " ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
	  X, "3 -4 1 2 -2 3.5 1024 0.5 3.0 0.5" },
	{ "{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 1 ~ 2 * 3 }}"
	  " {{ 1 - 2 - 3 }} {{ 10 / 2 * 5 }}",
	  X, "64 4 7 9 16 -4 25.0" },
	{ "{{ 'a' ~ 1 ~ none ~ 1.5 ~ true }} {{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {"
	  "{ 'ab' * -1 }} {{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }}",
	  X, "a1None1.5True ab ababab ababab  [1, 2] [1, 2, 1, 2] (1, 2)" },
	{ "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ "
	  "[1, [2]] == [1, [2]] }} {{ {'a': 1} == {'a': 1.0} }} {{ 'a' < 'b' }} {{ [1, 2] < "
	  "[1, 3] }} {{ 1 != 2 }} {{ none == none }}",
	  X, "True False True True False True True True True True True" },
	{ "{{ 'b' in 'abc' }} {{ 1 in l }} {{ 5 not in l }} {{ 'a' in d }} {{ 'q' in d }} {{"
	  " none in [none] }} {{ '' in '' }} {{ missing in l }} {{ 'x' in missing }}",
	  X, "True True True True False True True False False" },
	{ "{{ not 1 }} {{ not not 1 }} {{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ '' or ["
	  "] }} {{ not 1 == 2 }} {{ 1 and not 0 }}",
	  X, "False True 2 0 x [] True True" },
	{ "{{ 'y' if t else 'n' }} {{ 'y' if n }}| {{ 1 if 0 else 2 if 0 else 3 }} {{ ('a' i"
	  "f t else 'b') + 'c' }} {{ 'x' if missing is defined else 'u' }}",
	  X, "y | 3 ac u" },
	{ "{{ s }}|{{ s.strip() }}|{{ s | trim }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ 'xxab"
	  "xx'.strip('x') }}|{{ 'xyabyx'.lstrip('yx') }}|{{ 'ab\\n\\n'.rstrip('\\n') }}",
	  X,
	  "  H\303\251llo W\303\266rld \n|H\303\251llo W\303\266rld|H\303\251llo W\303\266rl"
	  "d|H\303\251llo W\303\266rld \n|  H\303\251llo W\303\266rld|ab|abyx|ab" },
	{ "{{ s.upper() }} {{ s | lower }} {{ 'hello wORLD it\\'s'.title() }} {{ 'hELLO w'.c"
	  "apitalize() }} {{ '\303\251t\303\251' | capitalize }} {{ 'a-b c' | title }}",
	  X,
	  "  H\303\211LLO W\303\226RLD \n   h\303\251llo w\303\266rld \n Hello World It'S He"
	  "llo w \303\211t\303\251 A-B C" },
	{ "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ '"
	  "a,b,c'.rsplit(',', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a b  c'.split(n"
	  "one, 1) }} {{ 'aXbX'.split('X')[-1] }}|",
	  X, "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b c'] ['a,b', 'c'] [] [''] ['a', 'b  c'] |" },
	{ "{{ 'a\\nb\\r\\nc'.splitlines() }} {{ 'abc'.partition('b') }} {{ 'abcbd'.rpartitio"
	  "n('b') }} {{ 'abc'.partition('x') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.remov"
	  "esuffix('c') }}",
	  X, "['a', 'b', 'c'] ('a', 'b', 'c') ('abc', 'b', 'd') ('abc', '', '') bc ab" },
	{ "{{ 'abc'.startswith('a') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.startswith("
	  "'') }} {{ 'abcabc'.find('c') }} {{ '\303\251ab\303\251'.rfind('\303\251') }} {{ '"
	  "abc'.find('x') }} {{ 'aXbXc'.count('X') }} {{ 'abc'.count('') }}",
	  X, "True True True 2 3 -1 2 4" },
	{ "{{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'abc' | replace("
	  "'b', '') }} {{ 'aaa' | replace('a', 'xy', 1) }} {{ 'ab\303\251'.replace('', '.', "
	  "2) }} {{ ''.replace('', 'x') }}",
	  X, "bba -a-b-c- ac xyaa .a.b\303\251 x" },
	{ "{{ '-'.join(['a', 'b']) }} {{ l | join(', ') }} {{ m | join('|', attribute='role'"
	  ") }} {{ l | join }} {{ 'abc' | join('.') }}",
	  X, "a-b 3, 1, 2 user|assistant 312 a.b.c" },
	{ "{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }"
	  "} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ ''.isdigit() }} {{ '7'.zfill(3) }"
	  "} {{ '-7'.zfill(4) }}",
	  X, "True True True True True True False 007 -007" },
	{ "{{ '{} {}'.format(1, 'a') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=3)"
	  " }} {{ '{{}}'.format() }} {{ '%s-%d-%.2f-%%' % ('a', 3, 1.005) }} {{ '%s' % 5 }} "
	  "{{ '%r' % ('a',) }} {{ '%s,%s' | format(1, 2) }}",
	  X, "1 a ba 3 {} a-3-1.00-% 5 'a' 1,2" },
	{ "{{ 'abcdef'[1:3] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[-2:] }} {{ 'abcdef'[:-2] }} "
	  "{{ 'abcdef'[::2] }} {{ 'abcdef'[4:1:-1] }} {{ 'abcdef'[10:] }}| {{ 'a\303\251b'[1"
	  "] }} {{ 'abc'[-1] }} {{ 'abc'[5] }}|",
	  X, "bc fedcba ef abcd ace edc | \303\251 c |" },
	{ "{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[::-1] }} {{ l[5] }}| {{ l[:100] }} {{ l[-"
	  "100:2] }} {{ l[2:0:-1] }} {{ (1, 2, 3)[1:] }} {{ [][1:] }} {{ l[none:2] }} {{ l.0"
	  " }}",
	  X, "3 2 [1, 2] [2, 1, 3] | [3, 1, 2] [3, 1] [2, 1] (2, 3) [] [3, 1] 3" },
	{ "{{ d.a }} {{ d['b'] }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.missing }}| {{ d"
	  "['missing'] }}| {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list"
	  " }} {{ n.x }}| {{ i.x }}| {{ d.a.0 }}",
	  X,
	  "[1.5, None, True] 1 None 5 | | [('b', 1), ('a', [1.5, None, True]), ('C', \"x'y\""
	  ")] ['b', 'a', 'C'] [1, [1.5, None, True], \"x'y\"] | | 1.5" },
	{ "{{ d }} {{ d | tojson }} {{ \"it's\" }} {{ [\"it's\", 'say \"x\"', 'a\\\\b\\n', '"
	  "\\'\"'] }} {{ ['\303\251', '\\u200b', '\\x00', '\\x7f', '\\U0001f600', '\\u0378']"
	  " }}",
	  X,
	  "{'b': 1, 'a': [1.5, None, True], 'C': \"x'y\"} {\"b\": 1, \"a\": [1.5, null, true"
	  "], \"C\": \"x'y\"} it's [\"it's\", 'say \"x\"', 'a\\\\b\\n', '\\'\"'] ['\303\251'"
	  ", '\\u200b', '\\x00', '\\x7f', '\360\237\230\200', '\\u0378']" },
	{ "{{ tools | tojson }} {{ tools | tojson(indent=2) }} {{ tools | tojson(ensure_asci"
	  "i=true) }} {{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) "
	  "}} {{ [] | tojson(indent=4) }} {{ {} | tojson }} {{ {1: 2, none: 3, 2.5: 4} | toj"
	  "son }} {{ 'x' | tojson }} {{ [1.0, 1e30, true, none] | tojson }} {{ {'a': [1, {}]"
	  ", 'b': []} | tojson(indent='--') }}",
	  X,
	  "[{\"name\": \"f\", \"p\": {\"x\": \"<\\\"\303\251\\\\\360\237\230\200\\n\\t\\u000"
	  "1\177>\"}}] [\n  {\n    \"name\": \"f\",\n    \"p\": {\n      \"x\": \"<\\\"\303\251"
	  "\\\\\360\237\230\200\\n\\t\\u0001\177>\"\n    }\n  }\n] [{\"name\": \"f\", \"p\":"
	  " {\"x\": \"<\\\"\\u00e9\\\\\\ud83d\\ude00\\n\\t\\u0001\\u007f>\"}}] {\"C\": \"x'y"
	  "\", \"a\": [1.5, null, true], \"b\": 1} {\"b\":1,\"a\":[1.5,null,true],\"C\":\"x'"
	  "y\"} [] {} {\"1\": 2, \"null\": 3, \"2.5\": 4} \"x\" [1.0, 1e+30, true, null] {\n"
	  "--\"a\": [\n----1,\n----{}\n--],\n--\"b\": []\n}" },
	{ "{{ l | length }} {{ s | length }} {{ d | count }} {{ missing | length }} {{ '\303"
	  "\251\360\237\230\200' | length }} {{ l | first }} {{ l | last }} {{ [] | first }}"
	  "| {{ 'abc' | last }}",
	  X, "3 15 3 0 2 3 2 | c" },
	{ "{{ missing | default('x') }} {{ none | default('x') }} {{ none | default('x', tru"
	  "e) }} {{ '' | d('y', boolean=true) }} {{ missing | default }}| {{ m[5] | default("
	  "'z') }}",
	  X, "x None x y | z" },
	{ "{{ l | sort }} {{ w | sort }} {{ w | sort(case_sensitive=true) }} {{ l | sort(rev"
	  "erse=true) }} {{ m | sort(attribute='content') | map(attribute='content') | list "
	  "}} {{ d | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1, '"
	  "a': 2} | dictsort(reverse=true) }} {{ {'b': 1, 'B': 0, 'a': 2} | dictsort(true) }"
	  "}",
	  X,
	  "[1, 2, 3] ['A', 'a', 'b', 'c'] ['A', 'a', 'b', 'c'] [3, 2, 1] ['hi', 'yo'] [('a',"
	  " [1.5, None, True]), ('b', 1), ('C', \"x'y\")] [('b', 1), ('a', 2)] [('b', 1), ('"
	  "a', 2)] [('B', 0), ('a', 2), ('b', 1)]" },
	{ "{{ ['a', 'A', 'b', 'a'] | unique | list }} {{ [1, 2, 1, true] | unique | list }} "
	  "{{ l | reverse | list }} {{ 'abc' | reverse }} {{ l | min }} {{ w | max }} {{ l |"
	  " sum }} {{ [[1, 2], [3]] | sum(start=[]) }} {{ [] | sum }}",
	  X, "['a', 'b'] [1, 2] [2, 1, 3] cba 1 c 6 [1, 2, 3] 0" },
	{ "{{ m | map(attribute='role') | list }} {{ w | map('upper') | list }} {{ m | map(a"
	  "ttribute='k.z', default=0) | list }} {{ m | selectattr('role', 'equalto', 'user')"
	  " | list | length }} {{ m | rejectattr('k') | map(attribute='content') | first }} "
	  "{{ l | select('odd') | list }} {{ l | reject('gt', 1) | list }} {{ l | select | l"
	  "ist }} {{ m | selectattr('k', 'defined') | list | count }} {{ none | map('upper')"
	  " | list }} {{ l | map('string') | join('-') }}",
	  X,
	  "['user', 'assistant'] ['B', 'A', 'C', 'A'] [1, 0] 1 yo [3, 1] [1] [3, 1, 2] 1 [] "
	  "3-1-2" },
	{ "{{ '42' | int }} {{ ' 42 ' | int }} {{ '4.7' | int }} {{ 'x' | int }} {{ 'x' | in"
	  "t(5) }} {{ 3.9 | int }} {{ -3.9 | int }} {{ '1f' | int(base=16) }} {{ none | int "
	  "}} {{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ '1e3' | float }} {{ t"
	  "rue | int }} {{ 'inf' | float }}",
	  X, "42 42 4 0 5 3 -3 31 0 1.5 0.0 3.0 1000.0 1 inf" },
	{ "{{ 2.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(method='ceil') }} {{ 2.9 "
	  "| round(0, 'floor') }} {{ -3 | abs }} {{ 3.5 | abs }} {{ 1 | string ~ 'x' }} {{ ["
	  "1] | string | length }} {{ 'a b c' | wordcount }} {{ [1, 2, 3] | batch(2) | list "
	  "}} {{ [1, 2, 3] | batch(2, 0) | list }} {{ 42.55 | round(1) }}",
	  X, "2.0 2.57 3.0 2.0 3 3.5 1x 3 3 [[1, 2], [3]] [[1, 2], [3, 0]] 42.5" },
	{ "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | ind"
	  "ent(1, blank=true) }}|{{ 'a\\nb' | indent('> ') }}|{{ 'a\\n' | indent(first=true)"
	  " }}|{{ '' | indent }}",
	  X, "a\n    b\n\n    c|  a\n  b|a\n \n b|a\n> b|    a\n|" },
	{ "{{ '<a href=\"x\">&\\'' | e }} {{ '<' | safe }} {{ ('<' | safe) + '<' }} {{ '<' +"
	  " ('<' | safe) }} {{ ('<' | safe) ~ '<' }} {{ ('<' | safe | upper) + '>' }} {{ '<'"
	  " | e | e }} {{ ('a' | safe).upper() + '<' }} {{ d | items | list }} {{ missing | "
	  "items | list }} {{ d | attr('items') is defined }} {{ d | list }} {{ 'ab' | list "
	  "}} {{ missing | list }}",
	  X,
	  "&lt;a href=&#34;x&#34;&gt;&amp;&#39; < <&lt; &lt;< << <&gt; &lt; A&lt; [('b', 1),"
	  " ('a', [1.5, None, True]), ('C', \"x'y\")] [] True ['b', 'a', 'C'] ['a', 'b'] []" },
	{ "{{ missing }}|{{ missing | upper }}|{{ missing ~ 'x' }}|{{ missing is defined }}|"
	  "{{ missing == none }}|{{ missing == other }}|{{ not missing }}|{{ missing or 'x' "
	  "}}|{{ missing | trim }}|{{ missing | string }}|{{ [missing] }}|{{ missing | join("
	  "'a') }}",
	  X, "||x|False|False|True|True|x|||[Undefined]|" },
	{ "{{ n is none }} {{ n is not none }} {{ d is mapping }} {{ l is mapping }} {{ 'a' "
	  "is string }} {{ l is sequence }} {{ d is sequence }} {{ 'a' is sequence }} {{ 1 i"
	  "s sequence }} {{ l is iterable }} {{ d is iterable }} {{ 'a' is iterable }} {{ 1 "
	  "is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ missing is seq"
	  "uence }} {{ missing is mapping }}",
	  X,
	  "True False True False True True True True False True True True False False True T"
	  "rue False" },
	{ "{{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ 'a' is number }} {{"
	  " 1 is integer }} {{ true is integer }} {{ 1.0 is integer }} {{ 1.0 is float }} {{"
	  " true is boolean }} {{ 1 is boolean }} {{ true is true }} {{ 1 is true }} {{ fals"
	  "e is false }} {{ 3 is odd }} {{ 3 is even }} {{ 4 is divisibleby 2 }} {{ 4 is div"
	  "isibleby(3) }} {{ 1 is eq 1 }} {{ 1 is ne(1) }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {"
	  "{ 1 is in [1] }} {{ 'a' is in 'abc' }} {{ 'A' is upper }} {{ 'a' is lower }} {{ n"
	  "one is sameas none }} {{ range is callable }} {{ 'upper' is filter }} {{ 'odd' is"
	  " test }} {{ 'x' is not string and true }} {{ 1 is not number or false }}",
	  X,
	  "True True True False True False False True True False True False True True False "
	  "True False True False True True True True True True True True True True False Fal"
	  "se" },
	{ "{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ ra"
	  "nge(0) | list }} {{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([['a', 1]"
	  "]) }} {{ strftime_now('%Y-%m-%d %H:%M %B %b %-d %j') }}",
	  X,
	  "[0, 1, 2] [1, 2, 3] [5, 3, 1] [] {'a': 1, 'b': 2} {'x': 1, 'y': 2} {'a': 1} 2025-"
	  "07-29 12:15 July Jul 29 210" },
	{ "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revin"
	  "dex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop"
	  ".nextitem }}{{ loop.depth }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }};{"
	  "% endfor %}",
	  X, "1032TrueFalse311aTrue;2121FalseFalse3321bTrue;3210FalseTrue311aTrue;" },
	{ "{% for x in [] %}a{% else %}none{% endfor %}{% for x in [1] %}a{% else %}none{% e"
	  "ndfor %}{% for x in missing %}a{% else %}u{% endfor %}{% for x in l if x > 1 %}{{"
	  " x }}{{ loop.index }}{{ loop.length }}{% endfor %}{% for x in l if x > 9 %}{% els"
	  "e %}E{% endfor %}",
	  X, "noneau312222E" },
	{ "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% "
	  "endfor %}{% for c in 'h\303\251o' %}[{{ c }}]{% endfor %}{% for a, (b, c) in [[1,"
	  " [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for a, b in ['xy'] %}{{ b }}{{ a "
	  "}}{% endfor %}",
	  X, "b=1;a=[1.5, None, True];C=x'y;baC[h][\303\251][o]123yx" },
	{ "{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %"
	  "}{% break %}{% endif %}{{ x }}{% endfor %}{% for x in [1, 2] %}{% for y in [1, 2]"
	  " %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.depth }}{% endfor %"
	  "}{% endfor %}",
	  X, "13111211" },
	{ "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}"
	  "{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}{% set ns = namespace(a=1, b"
	  "='c') %}{% for i in [1, 2] %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}{{ ns"
	  ".b }}{{ ns.c }}|{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c "
	  "}}{{ d }}{{ ns['a'] }}",
	  X, "1212193c|12343" },
	{ "{% set x %}a{{ 1 }}{% set y = 2 %}{% endset %}{{ x }}{{ y }}|{% set x | upper | t"
	  "rim %} ab {% endset %}{{ x }}{% filter upper %}x{{ 'y' }}{% endfilter %}{% with a"
	  " = 1, b = 2 %}{{ a }}{{ b }}{% set z = 1 %}{% endwith %}{{ z }}{{ a }}|{% set ns "
	  "= namespace() %}{% set ns.t %}q{% endset %}{{ ns.t }}",
	  X, "a1|ABXY12|q" },
	{ "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}|{% endmacro %}{{ f(1) }}{{ f(1, c"
	  "=3) }}{{ f(b=5, a='x') }}{{ f() }}{{ f('y', 'z', 'w') | upper }}{% set r = f(1) %"
	  "}{{ r | length }}{{ f.name }}",
	  X, "121|123|x5x|2|YZW|4f" },
	{ "{% macro g(n) %}{% if n > 0 %}{{ n }}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g("
	  "5) }}{% macro h() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ h() }}{% mac"
	  "ro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in{% endcall %}{% macro v(x)"
	  " %}{{ caller(x, 2) }}{% endmacro %}{% call(a, b=1) v(7) %}{{ a }}{{ b }}{% endcal"
	  "l %}",
	  X, "54321L<in>72" },
	{ "{% for x in [1, 2] %}{% macro q() %}{{ x }}{% endmacro %}{{ q() }}{% endfor %}{% "
	  "macro p(x) %}{% set x = 5 %}{{ x }}{% endmacro %}{{ p(1) }}{% set i = 4 %}{% macr"
	  "o z() %}{{ i }}{% set i = 8 %}{% endmacro %}{{ z() }}{{ i }}",
	  X, "12544" },
	{ "a{# comment #}b{#- c -#} d {#- e #}{% raw %}{{ x }}{% y %}{% endraw %}{%- raw -%}"
	  " z {%- endraw -%} .",
	  X, "abd{{ x }}{% y %}z." },
	{ "  a  {%- if true -%}  b  {%- endif -%}  c  {{- ' d ' -}}  e", X, "  abc d e" },
	{ "{% if true %}\n  x\n    {% if true %}\n  y\n    {% endif %}\n  {{ 1 }}\n{% endif "
	  "%}",
	  X, "  x\n  y\n  1\n" },
	{ "end", X, "end" },
	{ "   {%+ if true %}a{%+ endif %}", X, "   a" },
	{ "  {% if true +%}\nb{% endif %}", X, "\nb" },
	{ "{{ 'a\\tb\\x41\\u00e9\\101\\q\\\\' }} {{ \"a'b\" }} {{ 'a\"b' }} {{ 'a' 'b' \"c\""
	  " }} {{ 'x\\\ny' }}",
	  X, "a\011bA\303\251A\\q\\ a'b a\"b abc xy" },
	{ "{% generation %}g{% set u = 1 %}{% endgeneration %}{{ u }}|{% if 0 %}{{ 1 | nonse"
	  "nse }}{{ 1 is nonsense }}{% endif %}{{ 1, 2 }} {{ {'a': {'b': {'c': 1}}}.a.b.c }}"
	  "{{ '}}' }}{{ '%}' }}{{ {'a': 1}['a'] }}{{ [1, 2,] }}{{ {'a': 1,} }}",
	  X, "g|(1, 2) 1}}%}1[1, 2]{'a': 1}" },
	{ "{% if n %}1{% elif e %}2{% elif t %}3{% else %}4{% endif %}{% if el %}a{% elif ed"
	  " %}b{% else %}c{% endif %}{% if 0.0 %}a{% endif %}{% if 'a' is string and not n %"
	  "}ok{% endif %}{% if (1, 2) %}t{% endif %}{% if m[0].role == 'user' and m|length >"
	  " 1 %}z{% endif %}",
	  X, "3coktz" },
	{ "{{ m[0]['content'] }}{{ m[-1].role }}{{ m[0].k.z }}{{ m[0].items() | list | lengt"
	  "h }}{{ m[0].get('k', {}).get('z') }}{{ (m | first).role }}{{ m[1:] | length }}{{ "
	  "[m[0].role, 'x'] | join }}{{ l.index(2) }}{{ l.count(1) }}{{ l.append is defined "
	  "}}{{ d.copy() == d }}",
	  X, "hiassistant131user1userx21FalseTrue" },
	{ "{{ 'a'.__class__ }}|{{ loop }}|", X, "||" },
};

static const struct good bad[] = {
	{ "{{", X, "has no end" },
	{ "{{ 1", X, "has no end" },
	{ "{% if 1 %}", X, "has no end; 'elif' was expected" },
	{ "{% if 1 %}{% endfor %}", X, "no statement 'endfor'" },
	{ "a\n\n{{ 1 + }}", X, "line 3: an expression was" },
	{ "{{ 'a", X, "a string has no end" },
	{ "{# x", X, "a comment has no end" },
	{ "{% raw %}x", X, "has no {% endraw %}" },
	{ "{{ 1 2 }}", X, "the end of an expression (}}) was expected, not a number" },
	{ "{{ ) }}", X, "a closing bracket has no opening one" },
	{ "{{ a \? b }}", X, "unexpected character '\?'" },
	{ "{{ 1 | nonsense }}", X, "there is no filter named 'nonsense'" },
	{ "{{ 1 is nonsense }}", X, "there is no test named 'nonsense'" },
	{ "{% if 1 %}{{ 1 | nonsense }}{% endif %}", X, "there is no filter named 'nonsense'" },
	{ "{% nonsense %}", X, "there is no statement 'nonsense' here" },
	{ "{% 1 %}", X, "a statement was expected" },
	{ "{% for x y %}{% endfor %}", X, "'in' was expected" },
	{ "{% for 1 in x %}{% endfor %}", X, "a variable's name" },
	{ "{% set true = 1 %}", X, "a constant can't be assigned" },
	{ "{% break %}", X, "outside of a loop" },
	{ "{% macro f(a=1, b) %}{% endmacro %}", X, "without a default after one with" },
	{ "{{ f(a=1, 2) }}", X, "an argument without a name" },
	{ "{{ '\\xg1' }}", X, "too few hexadecimal digits" },
	{ "{{ a[] }}", X, "a subscript is empty" },
	{ "{{ a[1:2:3:4] }}", X, "at most three parts" },
	{ "{{ 1 is odd is even }}", X, "can't be chained" },
	{ "{% call x %}{% endcall %}", X, "a call was expected" },
	{ "{{ {1} }}", X, "':' was expected" },
	{ "\n{{ missing.x }}", X, "line 2: 'missing' is undefined" },
	{ "{{ d.x.y }}", X, "there is no attribute 'x'" },
	{ "{{ missing() }}", X, "'missing' is undefined" },
	{ "{{ missing + 1 }}", X, "'missing' is undefined" },
	{ "{{ missing < 1 }}", X, "'missing' is undefined" },
	{ "{{ missing['x'] }}", X, "'missing' is undefined" },
	{ "{{ -missing }}", X, "'missing' is undefined" },
	{ "{{ missing[1:] }}", X, "'missing' is undefined" },
	{ "{{ missing | int }}", X, "'missing' is undefined" },
	{ "{{ l.append(1) }}", X, "'append' would change a value" },
	{ "{{ d.pop('b') }}", X, "'pop' would change a value" },
	{ "{{ 1 + 'a' }}", X, "+ between int and str" },
	{ "{{ 'a' + n }}", X, "+ between str and None" },
	{ "{{ 1 / 0 }}", X, "a division by zero" },
	{ "{{ 1 % 0 }}", X, "a division by zero" },
	{ "{{ 1 < 'a' }}", X, "int and str have no order" },
	{ "{{ [1, 'a'] | sort }}", X, "have no order" },
	{ "{% for x in 1 %}{% endfor %}", X, "of type int can't be iterated over" },
	{ "{% for x in n %}{% endfor %}", X, "of type None can't be iterated over" },
	{ "{% for a, b in [[1]] %}{% endfor %}", X, "1 values for 2 variables" },
	{ "{{ 1 | length }}", X, "has no length" },
	{ "{{ 1 in 1 }}", X, "can't be iterated over" },
	{ "{{ 1 in 'a' }}", X, "needs a str, not int" },
	{ "{{ missing | tojson }}", X, "tojson: a value of type undefined" },
	{ "{{ 'a'.nothing() }}", X, "no attribute 'nothing'" },
	{ "{{ i() }}", X, "of type int can't be called" },
	{ "{{ {[1]: 2} }}", X, "can't be the key of a dict" },
	{ "{% set d.x = 1 %}", X, "only a namespace's attributes" },
	{ "{{ raise_exception('no ' ~ i) }}", X, "line 1: the template refuses this: no 7" },
	{ "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", X, "'f' takes 1 arguments, not 2" },
	{ "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", X, "takes no argument named 'b'" },
	{ "{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}", X, "is given 'a' twice" },
	{ "{{ 'a' | trim(1, 2, 3) }}", X, "trim takes 1 arguments at most" },
	{ "{{ 'a' | replace('b') }}", X, "replace needs the argument 'new'" },
	{ "{{ 'a' | indent(foo=1) }}", X, "takes no argument named 'foo'" },
	{ "{{ ','.join([1]) }}", X, "item 0 is int, not str" },
	{ "{{ 'a'.split('') }}", X, "not empty" },
	{ "{{ range(1, 2, 0) }}", X, "the step of a range is 0" },
	{ "{{ l[::0] }}", X, "the step of a slice is 0" },
	{ "{{ l['a':] }}", X, "a slice needs integers" },
	{ "{{ '%d' % 'a' }}", X, "needs a number, not str" },
	{ "{{ '%s' % (1, 2) }}", X, "too many arguments" },
	{ "{{ '%s %s' % 1 }}", X, "too few arguments" },
	{ "{{ '{}'.format() }}", X, "there is no value for {}" },
	{ "{{ 1 | abs(2) }}", X, "abs takes 0 arguments" },
	{ "{{ l | map('nonsense') | list }}", X, "no such filter" },
	{ "{{ l | select('nonsense') | list }}", X, "no such test" },
	{ "{{ namespace(_x=1) }}", X, "can't begin with _" },
	{ "{{ 99999999999999999999 }}", X, "does not fit into 64 bits" },
	{ "{{ '\\ud800' }}", X, "an escape is not a character" },
	{ "{{ 9223372036854775807 + 1 }}", X, "does not fit into 64 bits" },
	{ "{{ 2 ** 64 }}", X, "does not fit into 64 bits" },
	{ "{{ -9223372036854775807 - 2 }}", X, "64 bits" },
	{ "{{ (-9223372036854775807 - 1) // -1 }}", X, "64 bits" },
	{ "{{ 9223372036854775807 * 2 }}", X, "64 bits" },
};

static const struct good refused[] = {
	{ "{% include 'x' %}", X, "'include' is not supported" },
	{ "{% block x %}{% endblock %}", X, "'block' is not supported" },
	{ "{% for a in b recursive %}{% endfor %}", X, "recursive loops are not supported" },
	{ "{{ f(*a) }}", X, "* and ** in calls are not supported" },
};
