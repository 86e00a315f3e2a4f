#!/usr/bin/env python3
"""Writes tests/unit/model/jinja/jinja_cases.h: small templates, and what jinja2 (3.1.6) makes of
them, set up as golden.py does.  Run it again when a case is added."""
import json
import os
import sys
from pathlib import Path

from golden import environment

X = {"s": "  Héllo Wörld \n", "l": [3, 1, 2], "d": {"b": 1, "a": [1.5, None, True], "C": "x'y"},
     "w": ["b", "A", "c", "a"], "n": None, "t": True, "i": 7, "f": 2.5, "e": "", "el": [], "ed": {},
     "m": [{"role": "user", "content": "hi", "k": {"z": 1}}, {"role": "assistant", "content": "yo"}],
     "tools": [{"name": "f", "p": {"x": "<\"é\\😀\n\t\u0001\x7f>"}}]}

GOOD = """
{{ 1 }} {{ 1.0 }} {{ true }} {{ none }} {{ 'a' }} {{ [1, 'b', none] }} {{ (1,) }} {{ () }} {{ {'a': 1, 2: 'x'} }}
{{ 1e16 }} {{ 1e15 }} {{ 123456789.125 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1e22 }} {{ 1.5e-7 }} {{ -0.0 }} {{ 0.1 + 0.2 }}
{{ 100.0 }} {{ 1e5 }} {{ 1_000 }} {{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 2e3 }} {{ 1.25e+2 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 1 ~ 2 * 3 }} {{ 1 - 2 - 3 }} {{ 10 / 2 * 5 }}
{{ 'a' ~ 1 ~ none ~ 1.5 ~ true }} {{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * -1 }} {{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ [1, [2]] == [1, [2]] }} {{ {'a': 1} == {'a': 1.0} }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ none == none }}
{{ 'b' in 'abc' }} {{ 1 in l }} {{ 5 not in l }} {{ 'a' in d }} {{ 'q' in d }} {{ none in [none] }} {{ '' in '' }} {{ missing in l }} {{ 'x' in missing }}
{{ not 1 }} {{ not not 1 }} {{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ '' or [] }} {{ not 1 == 2 }} {{ 1 and not 0 }}
{{ 'y' if t else 'n' }} {{ 'y' if n }}| {{ 1 if 0 else 2 if 0 else 3 }} {{ ('a' if t else 'b') + 'c' }} {{ 'x' if missing is defined else 'u' }}
{{ s }}|{{ s.strip() }}|{{ s | trim }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ 'xxabxx'.strip('x') }}|{{ 'xyabyx'.lstrip('yx') }}|{{ 'ab\\n\\n'.rstrip('\\n') }}
{{ s.upper() }} {{ s | lower }} {{ 'hello wORLD it\\'s'.title() }} {{ 'hELLO w'.capitalize() }} {{ 'été' | capitalize }} {{ 'a-b c' | title }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a b  c'.split(none, 1) }} {{ 'aXbX'.split('X')[-1] }}|
{{ 'a\\nb\\r\\nc'.splitlines() }} {{ 'abc'.partition('b') }} {{ 'abcbd'.rpartition('b') }} {{ 'abc'.partition('x') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}
{{ 'abc'.startswith('a') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.startswith('') }} {{ 'abcabc'.find('c') }} {{ 'éabé'.rfind('é') }} {{ 'abc'.find('x') }} {{ 'aXbXc'.count('X') }} {{ 'abc'.count('') }}
{{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'abc' | replace('b', '') }} {{ 'aaa' | replace('a', 'xy', 1) }} {{ 'abé'.replace('', '.', 2) }} {{ ''.replace('', 'x') }}
{{ '-'.join(['a', 'b']) }} {{ l | join(', ') }} {{ m | join('|', attribute='role') }} {{ l | join }} {{ 'abc' | join('.') }}
{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ ''.isdigit() }} {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }}
{{ '{} {}'.format(1, 'a') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=3) }} {{ '{{}}'.format() }} {{ '%s-%d-%.2f-%%' % ('a', 3, 1.005) }} {{ '%s' % 5 }} {{ '%r' % ('a',) }} {{ '%s,%s' | format(1, 2) }}
{{ 'abcdef'[1:3] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[-2:] }} {{ 'abcdef'[:-2] }} {{ 'abcdef'[::2] }} {{ 'abcdef'[4:1:-1] }} {{ 'abcdef'[10:] }}| {{ 'aéb'[1] }} {{ 'abc'[-1] }} {{ 'abc'[5] }}|
{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[::-1] }} {{ l[5] }}| {{ l[:100] }} {{ l[-100:2] }} {{ l[2:0:-1] }} {{ (1, 2, 3)[1:] }} {{ [][1:] }} {{ l[none:2] }} {{ l.0 }}
{{ d.a }} {{ d['b'] }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.missing }}| {{ d['missing'] }}| {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ n.x }}| {{ i.x }}| {{ d.a.0 }}
{{ d }} {{ d | tojson }} {{ "it's" }} {{ ["it's", 'say "x"', 'a\\\\b\\n', '\\'"'] }} {{ ['é', '\\u200b', '\\x00', '\\x7f', '\\U0001f600', '\\u0378'] }}
{{ tools | tojson }} {{ tools | tojson(indent=2) }} {{ tools | tojson(ensure_ascii=true) }} {{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ [] | tojson(indent=4) }} {{ {} | tojson }} {{ {1: 2, none: 3, 2.5: 4} | tojson }} {{ 'x' | tojson }} {{ [1.0, 1e30, true, none] | tojson }} {{ {'a': [1, {}], 'b': []} | tojson(indent='--') }}
{{ l | length }} {{ s | length }} {{ d | count }} {{ missing | length }} {{ 'é😀' | length }} {{ l | first }} {{ l | last }} {{ [] | first }}| {{ 'abc' | last }}
{{ missing | default('x') }} {{ none | default('x') }} {{ none | default('x', true) }} {{ '' | d('y', boolean=true) }} {{ missing | default }}| {{ m[5] | default('z') }}
{{ l | sort }} {{ w | sort }} {{ w | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ m | sort(attribute='content') | map(attribute='content') | list }} {{ d | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) }} {{ {'b': 1, 'B': 0, 'a': 2} | dictsort(true) }}
{{ ['a', 'A', 'b', 'a'] | unique | list }} {{ [1, 2, 1, true] | unique | list }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ l | min }} {{ w | max }} {{ l | sum }} {{ [[1, 2], [3]] | sum(start=[]) }} {{ [] | sum }}
{{ m | map(attribute='role') | list }} {{ w | map('upper') | list }} {{ m | map(attribute='k.z', default=0) | list }} {{ m | selectattr('role', 'equalto', 'user') | list | length }} {{ m | rejectattr('k') | map(attribute='content') | first }} {{ l | select('odd') | list }} {{ l | reject('gt', 1) | list }} {{ l | select | list }} {{ m | selectattr('k', 'defined') | list | count }} {{ none | map('upper') | list }} {{ l | map('string') | join('-') }}
{{ '42' | int }} {{ ' 42 ' | int }} {{ '4.7' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.9 | int }} {{ -3.9 | int }} {{ '1f' | int(base=16) }} {{ none | int }} {{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ '1e3' | float }} {{ true | int }} {{ 'inf' | float }}
{{ 2.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(method='ceil') }} {{ 2.9 | round(0, 'floor') }} {{ -3 | abs }} {{ 3.5 | abs }} {{ 1 | string ~ 'x' }} {{ [1] | string | length }} {{ 'a b c' | wordcount }} {{ [1, 2, 3] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 0) | list }} {{ 42.55 | round(1) }}
{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(1, blank=true) }}|{{ 'a\\nb' | indent('> ') }}|{{ 'a\\n' | indent(first=true) }}|{{ '' | indent }}
{{ '<a href="x">&\\'' | e }} {{ '<' | safe }} {{ ('<' | safe) + '<' }} {{ '<' + ('<' | safe) }} {{ ('<' | safe) ~ '<' }} {{ ('<' | safe | upper) + '>' }} {{ '<' | e | e }} {{ ('a' | safe).upper() + '<' }} {{ d | items | list }} {{ missing | items | list }} {{ d | attr('items') is defined }} {{ d | list }} {{ 'ab' | list }} {{ missing | list }}
{{ missing }}|{{ missing | upper }}|{{ missing ~ 'x' }}|{{ missing is defined }}|{{ missing == none }}|{{ missing == other }}|{{ not missing }}|{{ missing or 'x' }}|{{ missing | trim }}|{{ missing | string }}|{{ [missing] }}|{{ missing | join('a') }}
{{ n is none }} {{ n is not none }} {{ d is mapping }} {{ l is mapping }} {{ 'a' is string }} {{ l is sequence }} {{ d is sequence }} {{ 'a' is sequence }} {{ 1 is sequence }} {{ l is iterable }} {{ d is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ missing is sequence }} {{ missing is mapping }}
{{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ 'a' is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is integer }} {{ 1.0 is float }} {{ true is boolean }} {{ 1 is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 3 is odd }} {{ 3 is even }} {{ 4 is divisibleby 2 }} {{ 4 is divisibleby(3) }} {{ 1 is eq 1 }} {{ 1 is ne(1) }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 1 is in [1] }} {{ 'a' is in 'abc' }} {{ 'A' is upper }} {{ 'a' is lower }} {{ none is sameas none }} {{ range is callable }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ 'x' is not string and true }} {{ 1 is not number or false }}
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([['a', 1]]) }} {{ strftime_now('%Y-%m-%d %H:%M %B %b %-d %j') }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }};{% endfor %}
{% for x in [] %}a{% else %}none{% endfor %}{% for x in [1] %}a{% else %}none{% endfor %}{% for x in missing %}a{% else %}u{% endfor %}{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }}{% endfor %}{% for x in l if x > 9 %}{% else %}E{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'héo' %}[{{ c }}]{% endfor %}{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for a, b in ['xy'] %}{{ b }}{{ a }}{% endfor %}
{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}{% for x in [1, 2] %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.depth }}{% endfor %}{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}{% set ns = namespace(a=1, b='c') %}{% for i in [1, 2] %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{{ ns['a'] }}
{% set x %}a{{ 1 }}{% set y = 2 %}{% endset %}{{ x }}{{ y }}|{% set x | upper | trim %} ab {% endset %}{{ x }}{% filter upper %}x{{ 'y' }}{% endfilter %}{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set z = 1 %}{% endwith %}{{ z }}{{ a }}|{% set ns = namespace() %}{% set ns.t %}q{% endset %}{{ ns.t }}
{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}|{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(b=5, a='x') }}{{ f() }}{{ f('y', 'z', 'w') | upper }}{% set r = f(1) %}{{ r | length }}{{ f.name }}
{% macro g(n) %}{% if n > 0 %}{{ n }}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(5) }}{% macro h() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ h() }}{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in{% endcall %}{% macro v(x) %}{{ caller(x, 2) }}{% endmacro %}{% call(a, b=1) v(7) %}{{ a }}{{ b }}{% endcall %}
{% for x in [1, 2] %}{% macro q() %}{{ x }}{% endmacro %}{{ q() }}{% endfor %}{% macro p(x) %}{% set x = 5 %}{{ x }}{% endmacro %}{{ p(1) }}{% set i = 4 %}{% macro z() %}{{ i }}{% set i = 8 %}{% endmacro %}{{ z() }}{{ i }}
a{# comment #}b{#- c -#} d {#- e #}{% raw %}{{ x }}{% y %}{% endraw %}{%- raw -%} z {%- endraw -%} .
  a  {%- if true -%}  b  {%- endif -%}  c  {{- ' d ' -}}  e
{% if true %}
  x
    {% if true %}
  y
    {% endif %}
  {{ 1 }}
{% endif %}
end
   {%+ if true %}a{%+ endif %}\n  {% if true +%}\nb{% endif %}
{{ 'a\\tb\\x41\\u00e9\\101\\q\\\\' }} {{ "a'b" }} {{ 'a"b' }} {{ 'a' 'b' "c" }} {{ 'x\\
y' }}
{% generation %}g{% set u = 1 %}{% endgeneration %}{{ u }}|{% if 0 %}{{ 1 | nonsense }}{{ 1 is nonsense }}{% endif %}{{ 1, 2 }} {{ {'a': {'b': {'c': 1}}}.a.b.c }}{{ '}}' }}{{ '%}' }}{{ {'a': 1}['a'] }}{{ [1, 2,] }}{{ {'a': 1,} }}
{% if n %}1{% elif e %}2{% elif t %}3{% else %}4{% endif %}{% if el %}a{% elif ed %}b{% else %}c{% endif %}{% if 0.0 %}a{% endif %}{% if 'a' is string and not n %}ok{% endif %}{% if (1, 2) %}t{% endif %}{% if m[0].role == 'user' and m|length > 1 %}z{% endif %}
{{ m[0]['content'] }}{{ m[-1].role }}{{ m[0].k.z }}{{ m[0].items() | list | length }}{{ m[0].get('k', {}).get('z') }}{{ (m | first).role }}{{ m[1:] | length }}{{ [m[0].role, 'x'] | join }}{{ l.index(2) }}{{ l.count(1) }}{{ l.append is defined }}{{ d.copy() == d }}
{{ 'a'.__class__ }}|{{ loop }}|
""".strip("\n")

BAD = [
    ("{{", "has no end"), ("{{ 1", "has no end"), ("{% if 1 %}", "has no end; 'elif' was expected"),
    ("{% if 1 %}{% endfor %}", "no statement 'endfor'"), ("a\n\n{{ 1 + }}", "line 3: an expression was"),
    ("{{ 'a", "a string has no end"), ("{# x", "a comment has no end"),
    ("{% raw %}x", "has no {% endraw %}"), ("{{ 1 2 }}", "the end of an expression (}}) was expected, not a number"),
    ("{{ ) }}", "a closing bracket has no opening one"), ("{{ a ? b }}", "unexpected character '?'"),
    ("{{ 1 | nonsense }}", "there is no filter named 'nonsense'"),
    ("{{ 1 is nonsense }}", "there is no test named 'nonsense'"),
    ("{% if 1 %}{{ 1 | nonsense }}{% endif %}", "there is no filter named 'nonsense'"),
    ("{% nonsense %}", "there is no statement 'nonsense' here"), ("{% 1 %}", "a statement was expected"),
    ("{% for x y %}{% endfor %}", "'in' was expected"), ("{% for 1 in x %}{% endfor %}", "a variable's name"),
    ("{% set true = 1 %}", "a constant can't be assigned"), ("{% break %}", "outside of a loop"),
    ("{% macro f(a=1, b) %}{% endmacro %}", "without a default after one with"),
    ("{{ f(a=1, 2) }}", "an argument without a name"),
    ("{{ '\\xg1' }}", "too few hexadecimal digits"), ("{{ a[] }}", "a subscript is empty"), ("{{ a[1:2:3:4] }}", "at most three parts"),
    ("{{ 1 is odd is even }}", "can't be chained"), ("{% call x %}{% endcall %}", "a call was expected"),
    ("{{ {1} }}", "':' was expected"), ("\n{{ missing.x }}", "line 2: 'missing' is undefined"),
    ("{{ d.x.y }}", "there is no attribute 'x'"), ("{{ missing() }}", "'missing' is undefined"),
    ("{{ missing + 1 }}", "'missing' is undefined"), ("{{ missing < 1 }}", "'missing' is undefined"),
    ("{{ missing['x'] }}", "'missing' is undefined"), ("{{ -missing }}", "'missing' is undefined"),
    ("{{ missing[1:] }}", "'missing' is undefined"), ("{{ missing | int }}", "'missing' is undefined"),
    ("{{ l.append(1) }}", "'append' would change a value"), ("{{ d.pop('b') }}", "'pop' would change a value"),
    ("{{ 1 + 'a' }}", "+ between int and str"), ("{{ 'a' + n }}", "+ between str and None"),
    ("{{ 1 / 0 }}", "a division by zero"), ("{{ 1 % 0 }}", "a division by zero"),
    ("{{ 1 < 'a' }}", "int and str have no order"), ("{{ [1, 'a'] | sort }}", "have no order"),
    ("{% for x in 1 %}{% endfor %}", "of type int can't be iterated over"),
    ("{% for x in n %}{% endfor %}", "of type None can't be iterated over"),
    ("{% for a, b in [[1]] %}{% endfor %}", "1 values for 2 variables"), ("{{ 1 | length }}", "has no length"),
    ("{{ 1 in 1 }}", "can't be iterated over"), ("{{ 1 in 'a' }}", "needs a str, not int"),
    ("{{ missing | tojson }}", "tojson: a value of type undefined"), ("{{ 'a'.nothing() }}", "no attribute 'nothing'"),
    ("{{ i() }}", "of type int can't be called"), ("{{ {[1]: 2} }}", "can't be the key of a dict"),
    ("{% set d.x = 1 %}", "only a namespace's attributes"), ("{{ raise_exception('no ' ~ i) }}", "line 1: the template refuses this: no 7"),
    ("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "'f' takes 1 arguments, not 2"),
    ("{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "takes no argument named 'b'"),
    ("{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}", "is given 'a' twice"),
    ("{{ 'a' | trim(1, 2, 3) }}", "trim takes 1 arguments at most"), ("{{ 'a' | replace('b') }}", "replace needs the argument 'new'"),
    ("{{ 'a' | indent(foo=1) }}", "takes no argument named 'foo'"), ("{{ ','.join([1]) }}", "item 0 is int, not str"),
    ("{{ 'a'.split('') }}", "not empty"), ("{{ range(1, 2, 0) }}", "the step of a range is 0"),
    ("{{ l[::0] }}", "the step of a slice is 0"), ("{{ l['a':] }}", "a slice needs integers"),
    ("{{ '%d' % 'a' }}", "needs a number, not str"),
    ("{{ '%s' % (1, 2) }}", "too many arguments"), ("{{ '%s %s' % 1 }}", "too few arguments"),
    ("{{ '{}'.format() }}", "there is no value for {}"), ("{{ 1 | abs(2) }}", "abs takes 0 arguments"),
    ("{{ l | map('nonsense') | list }}", "no such filter"), ("{{ l | select('nonsense') | list }}", "no such test"),
]
# What jinja2 does and Ingot refuses: the code is another.
REFUSED = [
    ("{% include 'x' %}", "'include' is not supported"), ("{% block x %}{% endblock %}", "'block' is not supported"),
    ("{% for a in b recursive %}{% endfor %}", "recursive loops are not supported"),
    ("{{ f(*a) }}", "* and ** in calls are not supported"),
]
# Errors of Ingot's own bounds or limits, where Python goes on.
OWN = [("{{ namespace(_x=1) }}", "can't begin with _"),
       ("{{ 99999999999999999999 }}", "does not fit into 64 bits"),
       ("{{ '\\ud800' }}", "an escape is not a character"),
       ("{{ 9223372036854775807 + 1 }}", "does not fit into 64 bits"),
       ("{{ 2 ** 64 }}", "does not fit into 64 bits"), ("{{ -9223372036854775807 - 2 }}", "64 bits"),
       ("{{ (-9223372036854775807 - 1) // -1 }}", "64 bits"), ("{{ 9223372036854775807 * 2 }}", "64 bits")]


def c_string(s):
    out = []
    for b in s.encode():
        if b in (0x22, 0x5c):
            out.append("\\" + chr(b))
        elif b == 0x0a:
            out.append("\\n")
        elif 0x20 <= b < 0x7f:
            out.append("\\?" if b == 0x3f else chr(b))
        else:
            out.append(f"\\{b:03o}")
    lines, line = [], ""
    for piece in out:
        line += piece
        if len(line) > 80:
            lines.append(line)
            line = ""
    return "\n\t  ".join(f'"{x}"' for x in lines + [line])


def cases():
    lines, block = [], []
    for line in GOOD.split("\n"):
        # A template goes on where a tag of a block is alone on its line, or a string is open.
        block.append(line)
        text = "\n".join(block)
        try:
            environment().parse(text)
        except Exception:
            continue
        lines.append(text)
        block = []
    assert not block, block
    return lines


def main():
    os.environ["TZ"] = "UTC"
    env = environment()
    out = ["/* jinja_cases.h: made by tests/golden/template/make_cases.py; don't edit. */",
           "#define X " + c_string(json.dumps(X)).replace("\n\t  ", " \\\n\t"), "",
           "static const struct good good[] = {"]
    for text in cases():
        try:
            want = env.from_string(text).render(**X)
        except Exception as e:
            sys.exit(f"{text}\n{type(e).__name__}: {e}")
        out.append(f"\t{{ {c_string(text)},\n\t  X,\n\t  {c_string(want)} }},")
    out += ["};", "", "static const struct good bad[] = {"]
    for text, why in BAD:
        try:
            env.from_string(text).render(**X)
        except Exception:
            out.append(f"\t{{ {c_string(text)}, X,\n\t  {c_string(why)} }},")
        else:
            sys.exit(f"jinja2 takes this: {text}")
    for text, why in OWN:
        out.append(f"\t{{ {c_string(text)}, X,\n\t  {c_string(why)} }},")
    out += ["};", "", "static const struct good refused[] = {"]
    for text, why in REFUSED:
        out.append(f"\t{{ {c_string(text)}, X,\n\t  {c_string(why)} }},")
    out.append("};")
    path = Path(__file__).resolve().parents[2] / "unit/model/jinja/jinja_cases.h"
    path.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
