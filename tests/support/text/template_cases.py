# ruff: noqa: E501 - a template stands on one line
"""Template sources: expressions and statements judged by jinja2, and attacks that must be stopped."""

from __future__ import annotations

DATA = {
    "messages": [{"role": "user", "content": " Hi There \n"}, {"role": "assistant", "content": "b,a,,c"}],
    "x": 7, "y": -2.5, "s": "  Ab c\td \n", "n": None, "t": True, "u": "straße ΑΣ ǆ", "e": [], "d": {"b": 1, "a": "z"},
    "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "o": [{"k": 2, "n": "x"}, {"k": 1}, {"k": 2, "n": {"m": 5}}],
    "q": "a&b<c>'\"", "long": "one\ntwo\n\n  three\r\nfour", "deep": {"a": [{"b": {"items": 1, "c": "v"}}]},
}  # fmt: skip
# Separated by bars; each is printed in brackets.
EXPRESSIONS = """
'a' ~ 1 + 2 | 1 ~ 2 + 'a' | 'a' + 1 ~ 'b' | 2 * 3 ~ 4 | d['items']()|list | d['keys'] is defined | 'ab'['upper']() | d[l] | d[d] is defined
1 + 2 * 3 - 4 // 3 % 2 | 2 ** 3 ** 2 | -x ** 2 | -x | +y | 7 / 2 | 1e3 | 1.50 | 0 | 1_000 | not x | not n | x % 4
1 < 2 < 3 | 3 > 2 > 2 | 1 == 1.0 | 'a' < 'b' | 1 != 2 | t == 1 | n == none | [1, 2] == [1, 2] | (1, 2) == [1, 2]
'a' ~ 1 ~ none ~ t ~ y | 'a' + 'b' 'c' | 'ab' * 3 | 2 * 'ab' | [1] + [2] | 'it''s' | "\\x41\\u00e9\\101\\n"
x if t else y | x if n | 'a' if n else 'b' if n else 'c' | x and n | n or x | n or e or 'z' | 'a' in 'cab' | 3 in l
4 not in l | 'b' in d | not 3 in l | 'a' not in 'bcd' | x is defined | zz is defined | zz is not defined | zz | zz ~ 'a'
l[0] | l[-1] | l[9] | l[1:] | l[::-1] | l[-2:] | l[:1] | s[2:4] | s[::-1] | s[0] | s[-1] | 'abc'[5] | d['a'] | d.a
d['zz'] | d.zz | d.zz.yy | zz.a | zz['a'] | d.keys()|list | d.values()|list | d.get('a') | d.get('zz', 3)
deep.a[0].b.c | deep['a'][0]['b']['c'] | deep.a.0.b.c | (1, 'a', n) | (1,) | () | {'a': [1, {}]}
[1, 'a"', "it's", n, t, y, {'k': 'v'}] | {} | [] | {'a': 1,} | [1,] | messages[0].content | messages[0]['role'] | 'é' "\\""
s.strip() | s.lstrip() | s.rstrip() | s.strip(' A') | s.split() | 'a,b,,c'.split(',') | 'a,b,c'.split(',', 1) | s.split(None, 1)
'a,b,c'.rsplit(',', 1) | s.upper() | s.lower() | s.title() | s.capitalize() | u.upper() | u.title() | u.capitalize() | u.lower()
s.startswith('  A') | s.endswith('\\n') | 'aXbXc'.replace('X', '--') | 'aXbXc'.replace('X', '', 1) | 'abc'.find('c') | 'ab'.index('z')
'abcabc'.count('bc') | 'abcb'.rfind('b') | '12'.isdigit() | ','.join(w) | long.splitlines() | long.splitlines(true) | 'xax'.removeprefix('x')
'xax'.removesuffix('x') | 'AB'.isupper() | s.nope() | s.nope | ''.__class__.__mro__ | d.pop('a')
s|trim | s|trim(' \\n') | s|length | l|length | d|length | zz|length | x|length | s|upper | s|lower | 'aB c'|title | 'aB'|capitalize
zz|default('q') | n|default('q') | n|default('q', true) | e|default('q', boolean=true) | x|d(1) | l|join | l|join(', ') | o|join(',', attribute='k')
o|map(attribute='k')|list | o|map(attribute='n.m')|list | o|map(attribute='n', default=0)|list | w|map('upper')|list | w|map('replace', 'a', 'o')|list
o|selectattr('n')|list | o|selectattr('n', 'defined')|list | o|rejectattr('k', 'equalto', 2)|list | o|selectattr('k', '>', 1)|list | l|select('odd')|list
l|reject('equalto', 3)|list | w|select|list | l|sort | w|sort | w|sort(reverse=true) | w|sort(case_sensitive=true) | o|sort(attribute='k')|tojson
w|unique|list | [1, 2, 1]|unique|list | d|dictsort | d|dictsort(by='value') | d|items|list | zz|items|list
l|first | l|last | e|first | s|first | s|last | l|reverse|list | s|reverse | l|sum | o|sum(attribute='k') | l|max | l|min | w|max | l|list | 'ab'|list
'12'|int | 'x'|int | 'x'|int(5) | '1.9'|float | 'x'|float | y|int | y|abs | 2.567|round(2) | 2.4|round | x|string | l|string | n|string | q|e | q|escape | q|safe
long|indent | long|indent(2, true) | long|indent(2, first=true, blank=true) | 'a'|indent | d|tojson | o|tojson(indent=2) | q|tojson | 'é'|tojson | 'é'|tojson(ensure_ascii=true)
d|tojson(sort_keys=true) | d|tojson(separators=(',', ':')) | zz|tojson | s|replace('b', 'x') | 'aaa'|replace('a', 'b', 2) | x|nofilter | s|count | 'a b'|wordwrong
x is number | x is integer | y is float | y is integer | t is boolean | t is integer | t is number | n is none | s is string | d is mapping | l is iterable
s is iterable | x is iterable | zz is iterable | l is sequence | d is sequence | s is sequence | x is sequence | l is mapping | t is true | n is false | x is odd | x is even | x is divisibleby 7
x is divisibleby(2) | x is eq 7 | x is equalto(7) | x is ne 7 | x is gt 3 | x is lessthan 3 | x is in [7] | 'A' is upper | 'a' is lower | x is not string | x is sameas 7
not x is string | s is string and x is number | x is nosuch | s is odd | zz + 'a' | n + 'a' | 1 + 'a' | 'a' - 1 | zz < 1 | 'a' < 1 | 'a' in x | 1 in 'a' | l.nope | x() | zz() | s|trim|upper ~ 'x'
range(3)|list | range(1, 7, 2)|list | dict(a=1) | namespace(a=1).a | raise_exception('no') | strftime_now('%d') | zz|string|length | [zz] | d == {'a': 'z', 'b': 1} | l == zz | zz == yy
{'a': 1}['a'] | [1, 2][0] | ('a' ~ 'b')|upper | 'a' ~ 'b'|upper | -l|first | (1 if t else 2) + 1 | x | x == 7 and y < 0 or n | 'a' 'b' ~ 'c' | "a" if x is defined and x > 3 else "b" | zz is undefined | d.a is defined
q|safe + '<' | '<' + q|safe | ('<'|e) * 2 | '<'|e|e | '<'|e|forceescape | ('<b>%s'|safe) % '<' | ('<'|safe).join(['&', 'a'|safe]) | ('a-b'|safe).replace('-', '<') | ['<'|safe]
('{}<'|safe).format('<') | q|safe ~ '<' | (q|safe)[:3] + '<' | q|safe|upper + '<' | q|safe|replace('a', '<') + '<' | q|safe|title + '<' | '<'|safe is escaped | '<' is escaped
'{} {1} {k}'.format(1, k=2) | '{} {} {k!r:>5}'.format(1, 'b', k='v') | '{0:>6}|{0:*^7}|{0:.1}'.format('ab') | '{:08.3f}|{:+d}|{:x}|{:,}'.format(y, x, 255, 10**6) | '{{{}}}'.format(1)
'{'.format(1) | '{}'.format() | '{zz}'.format() | '{:q}'.format(1) | '{a}{b}'.format_map(d) | '{:5}{!s:^5}'.format(t, n)
'%s-%d %5.1f%%' % ('a', 7, y) | '%(a)s %(b)03d' % d | '%s' % s | '%-5s|%5s' % ('a', 'b') | '%d' % 'a' | '%s %s' % 'a' | '%s' % ('a', 'b') | '%x' % 255 | '%s'|format(1) | '%(k)s'|format(k=1)
'%r' % ['a'] | '%.2s' % 'abc' | '%c' % 'a' | '%s' % zz | 'a' % l | 'a' % 1 | '%' % 1 | '%q' % 1 | '%d%%' % t | '%s' % none | '%(z)s' % d
l|batch(2)|list | l|batch(2, 'f')|list | l|slice(2)|list | l|slice(2, 'f')|list | o|groupby('k')|list | o|groupby('n', default='z')|length | w|groupby(0)|list | 'ab'|center(7) | 'ab'|center ~ '.'
'one two three'|truncate(9) | 'one two three'|truncate(9, true) | 'one two three'|truncate(8, false, '', 0) | 'one'|truncate(2) | '42.9'|int | '0x1f'|int(0, 16) | 'z'|int('q') | 2.51|round(1, 'floor') | 2.4|round(method='ceil')
l|map('string') is iterable | l|map('string') is sequence | l|map('string')|length | l|map('string')|tojson | l|map('abs')|sum | (l|map('abs'))[0] | none|select|list | none|map('upper')|list | d.items() is sequence | d.keys()|length
d.items()[0] | d.keys() | d.items() | d.values()|tojson | 'b' in d.keys() | d.copy() | l.copy() | l.index(1) | l.count(3) | l.index(9) | l.append(4) | d.update(a=1) | (1, 2).index(2) | l.pop | l * 2 | 2 * [n]
'a b'.partition(' ') | 'a b c'.rpartition(' ') | 'ab'.partition('x') | 'ab'.rpartition('x') | '-7'.zfill(4) | 'ab'.center(5, '*') | 'ab'.ljust(4) ~ '|' | 'ab'.rjust(4) | 'aB'.swapcase() | u.casefold() | 'ab'.center(4.0)
'abc'.rindex('c') | 'Ab'.istitle() | '1'.isdecimal() | '1'.isnumeric() | 'a'.isascii() | 'a b'.isidentifier() | ' '.isspace() | 'a1'.isalnum() | 'a'.isalpha() | 'a'.islower() | 'ab'.replace('', '-') | 'ab'.replace('', '-', 1) | 'ab'|replace('', '-')
"it's o-k [x"|title | "it's"|capitalize | 'a' is in 'cab' | zz is callable | x is callable | dict is callable | [l, [1]]|sort | [(1, d), (2, d)]|max | d|items|list|min | [d, 1]|unique|list | dict([('a', 1)], b=2) | dict(d, a=3) | namespace({'a': 1}).a
d|items is iterable | range(9)[2:4] | x[1:] | l['a':] | n[1:] | 'ab'|indent('> ', true) | d|indent | d|tojson(indent='  ') | [d|list|first, *l] | range(*[1, 4])|list | dict(**d) | dict(**{'a': 1}, **d) | namespace(_a=1) | x is defined is string
l|le(3) | x is le 7 | x is ge 7 | x is lt 7 | x is greaterthan 3 | x is == 7 | l|d(1) | zz|first | zz|last | l|map('string')|last | 'x'|list|last | l|reverse|length | (1, (2, 3)) | messages|map(attribute='role')|join(',') | zz|int | zz|float
"""
STATEMENTS = [
    "{% for i in [[1, [2, [3]]], 4] recursive %}{{ loop.depth }}{{ loop.depth0 }}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}{% endif %}{% endfor %}",
    "{% for i in [1, 1, 2, 2] %}{% if loop.changed(i) %}{{ i }}{% endif %}{% endfor %}{% for i in l %}{% continue %}{% else %}e{% endfor %}{% for i in l %}{% break %}{% else %}e{% endfor %}{% for i in l %}{% if loop.last %}{% break %}{% endif %}{{ i }}{% else %}e{% endfor %}",
    "{% macro m(a) %}<{{ a }}{{ caller(2, c=3) }}>{% endmacro %}{% call(b, c) m(1) %}{{ b }}{{ c }}{{ x }}{% endcall %}{% call m(1) %}{% endcall %}{{ m(1) }}",
    "{% macro m(a) %}{{ caller is defined }}{{ caller() }}{% endmacro %}{% for i in l %}{% call m(i) %}{{ i }}{{ loop.index }}{% endcall %}{% endfor %}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, b=4) }}{{ m() }}{{ m(*l, **d) }}{% macro k(a) %}{{ kwargs }}{% endmacro %}{{ k(a=1, b=2) }}",
    "{% with a=1, b=x %}{{ a }}{{ b }}{% set a = 2 %}{{ a }}{% endwith %}{{ a }}{% with %}{% set z = 1 %}{% endwith %}{{ z }}{% with a=1 %}{% with a=2, b=a %}{{ b }}{% endwith %}{% endwith %}",
    "{% set a | upper | trim %} b {% endset %}[{{ a }}]{% filter upper|replace('B', s) %}a{% set s = 'q' %}b{% endfilter %}{% print x, s, 'a' if n %}",
    "{% for k, (a, b) in [(1, (2, 3))] %}{{ k }}{{ a }}{{ b }}{% endfor %}{% set (a, b) = l[:2] %}{{ a }}{{ b }}{% set a, (b, c) = 1, (2, 3) %}{{ c }}",
    "{% generation %}{% set a = 1 %}{{ a }}{% endgeneration %}{{ a }}{% for i in l %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% for i in l %}{% filter upper %}a{% if i == 1 %}{% break %}{% endif %}{% endfilter %}{{ i }}{% endfor %}{% for i in l %}{% set a %}b{% continue %}{% endset %}{{ a }}{% endfor %}",
    "{% set ns = namespace() %}{% set ns._a = 1 %}",
    "{% set true = 1 %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% call 1 %}{% endcall %}",
    "{% macro m() %}{% break %}{% endmacro %}",
    "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{{ dict(*l, *l) }}",
    "{% for i in l|map('string') %}{{ i }}{{ loop.last }}{% endfor %}{% set g = l|map('string') %}{{ g|list }}{{ g|list }}",
    "{% for i in n|selectattr('a') %}{{ i }}{% else %}e{% endfor %}{% for i in l if loop %}{{ i }}{% endfor %}",
    "{% if x %}a{% elif y %}b{% else %}c{% endif %}{% if n %}a{% elif e %}b{% else %}c{% endif %}{% if n %}a{% endif %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('p', 'q') }};{% endfor %}",
    "{% for i in e %}a{% else %}none{% endfor %}{% for i in l %}a{% else %}none{% endfor %}{% for c in 'ab' %}[{{ c }}]{% endfor %}",
    "{% for i in l if i > 1 %}{{ i }}/{{ loop.length }}{{ loop.last }}{% else %}none{% endfor %}{% for i in l if i > 9 %}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% for j in l %}{{ loop.index }}{% if j == 1 %}{% break %}{% endif %}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% set a = 1 %}{% for i in l %}{% set a = a + i %}{{ a }},{% endfor %}{{ a }}",
    "{% set ns = namespace(a=0, b='') %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.c = i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.z }}",
    "{% if t %}{% set a = 'in' %}{% endif %}{{ a }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a = 1, 2 %}{{ a }}",
    "{% set a %}x{{ x }}y{% endset %}[{{ a }}]{{ a|length }}{% for i in l %}{% set z = i %}{% endfor %}{{ z is defined }}",
    "{% macro m(a, b='B', c=a) %}<{{ a }}{{ b }}{{ c }}{{ x }}>{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m('q')|upper }}{{ m() }}",
    "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(4) }}{% set r = f(2) %}{{ r ~ '!' }}",
    "{% macro m() %}{% set g = 2 %}{{ g }}{{ x }}{% endmacro %}{% set g = 1 %}{{ m() }}{{ g }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{% filter upper %}a{{ s }}{% endfilter %}{% raw %}{{ x }}{% if %}{% endraw %}{%- raw -%} a {%- endraw -%} b",
    "{# c #}a{#- c -#} b {# {{ x }} {% if %} #}\n{# c #}\n  {# d #}\nz",
    "  {% if t %}\n  a\n  {% endif %}\n b {% if t %} c {% endif %}\n\t{%+ if t %}\n d{% endif +%}\n e\n\n",
    " {%- if t %} a {%- endif %} b {{- x }} c {{ x -}} d {% if t -%} \n e {% endif -%} \n f {{ x }}\n\n{{ x }}\n  {{ x }}",
    "a\r\nb\rc\n{{ 'x\r\ny' }}\r\n",
    "a\n{% if t -%}\n\n    {% set q = 1 %}\n  {%- endif %}\n   {% if t %}{% endif %}  \n  {{ x }}  {# c #}  \n{% set q %}\n p\n{% endset %}\n[{{ q }}]",
    "\n\n  {% if t %}a{% endif %}",
    "{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ \"%}\" }}{% if '%}' %}k{% endif %}{{ {'a': {}} }}",
    "{{ 1 }}{{ }}", "{% if %}{% endif %}", "{% if x %}", "{% endif %}", "{% for i in %}{% endfor %}", "{{ x", "{% nope %}", "{# open",
    "{{ 'open }}", "{{ (1 }}", "{{ 1) }}", "{{ a b }}", "{{ a..b }}", "{{ x | }}", "{{ [1, }}", "{{ x is }}", "{% set %}", "{{ f(a=1, 2) }}",
    "{% macro %}{% endmacro %}", "{{ l[1:2:3:4] }}", "{% for i in l %}{% else %}{% else %}{% endfor %}", "{{ $ }}",
    "{% for i, j in l %}{% endfor %}", "{% set x.y = 1 %}", "{% for i in x %}{% endfor %}", "{% for i in n %}{% endfor %}", "{% break %}",
    "{% for i in zz %}{% else %}none{% endfor %}{% for m in messages[::-1] %}{{ m.role }}{{ loop.index0 }}{% endfor %}", "", "\n", "{{ x }}\n\n",
    "{{- 'a' -}}\n\n{{ 'b' }}  {{- ' c' }}\n{%- set a = 1 -%}\n{%- set b = [1,\n 2] %}\n{{ a }}{{ b }}",
    "{% for i in l -%}\n  {{ i }}\n{%- endfor %}",
]  # fmt: skip

HOSTILE = {
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "range list": "{{ range(10**9)|list|length }}",
    "text times": "{{ 'a' * 10**9 }}",
    "text doubled": "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "text replaced": "{% set s = 'a' * 10**6 %}{{ s.replace('a', s) }}",
    "text joined": "{{ ('a' * 10**6).join(range(10**5)|list) }}",
    "many texts": "{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = ns.l + ['a' * 10**5] %}{% endfor %}",
    "texts read": "{% set s = 'a' * 10**6 %}{% for i in range(300) %}{% if 'b' in s %}{% endif %}{% endfor %}",
    "texts stripped": "{% set s = ' ' ~ 'a' * 10**6 %}{% for i in range(300) %}{{ s.strip()[:0] }}{% endfor %}",
    "texts compared": "{% set s = 'a' * 10**6 %}{% set z = 'a' * 10**6 %}{% for i in range(300) %}{% if s == z %}{% endif %}{% endfor %}",
    "texts filtered": "{% set s = 'a' * 10**6 %}{% for i in range(300) %}{% if s|length %}{% endif %}{% endfor %}",
    "texts ordered": "{% set s = 'a' * 10**6 %}{% for i in range(300) %}{% if s < s %}{% endif %}{% endfor %}",
    "found from the end": "{% set s = 'a' * 10**5 %}{% set w = 'ab' ~ s[:50000] %}{% for i in range(30000) %}{% if s.rfind(w) == 1 %}{% endif %}{% endfor %}",
    "parted from the end": "{% set s = 'a' * 10**5 %}{% set w = 'ab' ~ s[:50000] %}{% for i in range(30000) %}{% if s.rpartition(w) == 1 %}{% endif %}{% endfor %}",
    "split from the end": "{% set s = 'a' * 10**5 %}{% set w = 'ab' ~ s[:50000] %}{% for i in range(30000) %}{% if s.rsplit(w) == 1 %}{% endif %}{% endfor %}",
    "many letters stripped": "{% set s = 'a' * 10**5 %}{% set w = 'b' * 10**5 ~ 'a' %}{% for i in range(30000) %}{% if s.strip(w) == 1 %}{% endif %}{% endfor %}",
    "short text found": "{% set s = 'a' * 2499 %}{% set w = s[:1200] ~ 'ba' %}{% for i in range(30000) %}{% if w in s %}{% endif %}{% endfor %}",
    "texts tested": "{% set s = 'A' * 10**6 %}{% for i in range(30000) %}{% if s is upper %}{% endif %}{% endfor %}",
    "keys compared": "{% set s = 'a' * 10**6 %}{% set d = {'a' * 10**6: 1} %}{% for i in range(30000) %}{% if d[s] == 2 or s in d and d.get(s) == 2 %}{% endif %}{% endfor %}",
    "tuples hashed": "{% set t = (1,) * 30000 %}{% for i in range(30000) %}{% if t in {} %}{% endif %}{% endfor %}",
    "many beginnings": "{% set t = ('a',) * 30000 %}{% for i in range(30000) %}{% if 'b'.startswith(t) %}{% endif %}{% endfor %}",
    "missing keys shown": "{% set s = 'é' * 10**6 %}{% for i in range(30000) %}{% if {}[s] %}{% endif %}{% endfor %}",
    "dicts made": "{% set d = dict(range(20000)|map('string')|batch(2)|list) %}{% for i in range(30000) %}{% if dict(d) and namespace(d) %}{% endif %}{% endfor %}",
    "dicts formatted": "{% set d = dict(range(20000)|map('string')|batch(2)|list) %}{% for i in range(30000) %}{% if 'a'.format_map(d) == 1 or dict(d) %}{% endif %}{% endfor %}",
    "texts sorted": "{% set s = 'a' * 10**5 %}{% set l = [s ~ 1, s ~ 2, s ~ 3] %}{% for i in range(30000) %}{% if l|sort(case_sensitive=true) %}{% endif %}{% endfor %}",
    "path of an attribute": "{{ range(10**4)|map(attribute='a.' * 10**6, default={})|list }}",
    "rounded text": "{{ ('a' * 10**6)|round(3, 'ceil') }}",
    "rounded list": "{{ [1]|round(8, 'ceil') }}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "integer": "{% set ns = namespace(n=9) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}",
    "number literal": "{{ " + "9" * 10**5 + " }}",
    "list doubled": "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "list times": "{{ [1] * 10**9 }}",
    "shared printed": "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "shared as JSON": "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
    "shared compared": "{% set ns = namespace(l=[1], k=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
    "{% set ns.k = [ns.k, ns.k] %}{% endfor %}{{ ns.l == ns.k }}",
    "shared hashed": "{% set ns = namespace(l=(1,)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}",
    "shared raised": "{% set ns = namespace(l=[1]) %}{% for i in range(28) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ raise_exception(ns.l) }}",
    "shared as a filter": "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ [1]|map(ns.l)|list }}",
    "shared as an attribute": "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ (['a']|map(attribute=ns.l)|first).x }}",
    "shared as a width": "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ 'a'.center(ns.l) }}",
    "shared as an argument": "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ (ns.l)|round(ns.l) }}",
    "shared in a macro": "{% macro m() %}{% endmacro %}" "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ m(ns.l) }}",
    "nested loops": "{% for a in range(999) %}" * 4 + "{% endfor %}" * 4,
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "mutual recursion": "{% macro a() %}{{ b() }}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}",
    "brackets": "{{ " + "(" * 10**4 + ")" * 10**4 + " }}",
    "lists": "{{ " + "[" * 10**4 + "]" * 10**4 + " }}",
    "ifs": "{% if 1 %}" * 10**4 + "{% endif %}" * 10**4,
    "nots": "{{ " + "not " * 10**4 + "1 }}",
    "minus": "{{ " + "-" * 10**4 + "1 }}",
    "sum": "{{ " + "1 + " * 10**4 + "1 }}",
    "dots": "{{ a" + ".a" * 10**4 + " }}",
    "filters": "{{ 1" + "|string" * 10**4 + " }}",
    "deep value": "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
    "deep printed": "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
    "indent": "{{ 'a'|indent(10**9, true) }}",
    "JSON indent": "{{ [1]|tojson(indent=10**9) }}",
    "round": "{{ 1|round(-10**9) }}",
    "format": "{{ '%99999999999d' % 1 }}",
    "odd format": "{{ '%99999999999d' is odd }}",
    "output": "{% for i in range(10**4) %}{{ messages[0].content }}{% endfor %}",
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "format method": "{{ '{0.__class__}'.format(1) }}",
    "attr": "{{ ''|attr('__class__') }}",
    "import": "{% import 'os' as os %}",
    "include": "{% include 'x' %}",
    "call block recursion": "{% macro m() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call m() %}{{ r() }}{% endcall %}{% endmacro %}{{ r() }}",
    "loop recursion": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "center": "{{ 'a'|center(10**9) }}",
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "format width": "{{ '{:>999999999}'.format('a') }}",
    "format precision": "{{ '{:.999999999f}'.format(1) }}",
    "format nested": "{{ '{:{}}'.format(1, 10**9) }}",
    "format items": "{{ '{0[a]}'.format({'a': 1}) }}",
    "format map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "format many": "{{ ('{0}' * 10**5).format(messages[0].content) }}",
    "percent many": "{{ ('%(a)s' * 10**5) % {'a': messages[0].content} }}",
    "percent star": "{{ '%*d' % (10**9, 1) }}",
    "percent precision": "{{ '%.999999999f' % 1 }}",
    "replace empty": "{{ ('a' * 10**4).replace('', messages[0].content) }}",
    "replace all": "{{ ('a' * 10**4)|replace('a', messages[0].content) }}",
    "batch": "{{ [1]|batch(10**9, 0)|list }}",
    "slice": "{{ [1]|slice(10**9)|list }}",
    "lazy filters": "{% set ns = namespace(l=[1]) %}{% for i in range(5000) %}{% set ns.l = ns.l|map('string') %}{% endfor %}{{ ns.l|list }}",
    "escapes": "{% set ns = namespace(s='&') %}{% for i in range(60) %}{% set ns.s = ns.s|forceescape ~ ns.s %}{% endfor %}",
    "shared sorted": "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ [ns.l, ns.l]|sort }}",
    "shared unique": "{% set ns = namespace(l=(1,)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ [ns.l, ns.l]|unique|list }}",
    "shared found": "{% set ns = namespace(l=[1], k=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.k = [ns.k, ns.k] %}{% endfor %}{{ [ns.l].index(ns.k) }}",
    "shared changed": "{% set ns = namespace(l=[1], k=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.k = [ns.k, ns.k] %}"
    "{% endfor %}{% for i in [ns.l, ns.k] %}{{ loop.changed(i) }}{% endfor %}",
    "shared key": "{% set ns = namespace(l=(1,)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ ns.l in {}.keys() }}",
    "arguments": "{% macro m() %}{{ varargs|length }}{% endmacro %}{{ m(*range(10**9)) }}",
    "JSON indent text": "{{ [1]|tojson(indent='x' * 1000) }}",
    "indent text": "{{ 'a\nb'|indent('x' * 1000) }}",
    "titles": "{{ ('-' * 10**6 ~ 'a ')|title * 100 }}",
    "big power": "{{ 2 ** 64 ** 64 }}",
    "power again": "{{ (10 ** 64) ** 64 }}",
    "complex": "{{ (0 - 8) ** 0.5 }}",
    "escape of a macro": "{% macro m() %}{% endmacro %}{{ m.__globals__ }}",
    "item": "{{ ''['__class__'] }}",
    "map of attributes": "{{ ['']|map(attribute='__class__')|first|string|upper.x }}",
    "namespace": "{{ namespace().__init__.__globals__ }}",
    "loop class": "{% for i in [1] %}{{ loop.__class__.x }}{% endfor %}",
    "undefined class": "{{ zz.__class__ }}",
    "cycler": "{{ cycler.__init__.__globals__.os }}",
    "self": "{{ self._TemplateReference__context }}",
    "changed list": "{{ [].append(1) }}",
    "encode": "{{ 'a'.encode() }}",
}  # fmt: skip
