# ruff: noqa: E501 - a statement stands on one line
"""Random template sources over the supported subset, rendered by jinja2 and Camelid.

GRAMMAR lists the alternatives of each kind, separated by bars or one per line; <kind> stands for another
part. LEAVES replace parts beyond the depth limit.
"""

from __future__ import annotations

import random
import re

PART = re.compile("<([a-z]+)>")
LEAVES = {
    "text": "s ¦ u ¦ q ¦ long ¦ d.a ¦ 'ab' ¦ ' C d ' ¦ '' ¦ 'a,b' ¦ '<b>' ¦ a ¦ b ¦ messages[0].content"
    " ¦ w[0] ¦ long|trim",
    "number": "x ¦ y ¦ t ¦ 0 ¦ 1 ¦ -3 ¦ 2.5 ¦ l[1] ¦ d.b ¦ s|length ¦ 12 ¦ 1_0 ¦ 1e2",
    "items": "l ¦ w ¦ e ¦ [1, 'b', none] ¦ (1, 'z') ¦ range(4) ¦ o ¦ messages ¦ [l, w] ¦ 'cab'",
    "pairs": "d ¦ {} ¦ {'k': 1, 'j': [2]} ¦ o[0] ¦ deep ¦ messages[1] ¦ dict(a=1, b=d)",
    "any": "none ¦ zz ¦ d.zz ¦ i ¦ n ¦ true ¦ l[9] ¦ s ¦ x ¦ l ¦ d ¦ a ¦ e",
    "truth": "t ¦ n ¦ x ¦ e ¦ zz is defined ¦ not t",
    "statement": "{{ s }} ¦ {{- x }} ¦ {{ a -}} ¦ {{ i }} ¦ b ¦ {# c #} ¦ {{ ns.v }}",
}
GRAMMAR = {
    "any": "<text> ¦ <text> ¦ <text> ¦ <number> ¦ <items> ¦ <truth> ¦ (<any> if <truth> else <any>)"
    " ¦ (<any> if <truth>)"
    " ¦ (<items>|<pick>) ¦ <pairs> ¦ (<any>|d('q', true)) ¦ (<any> and <any>) ¦ (<any> or <any>)"
    " ¦ <any>|tojson"
    " ¦ <pairs>.get('k') ¦ <pairs>['k'] ¦ <pairs>.b ¦ (<items>)[<number>|int]",
    "text": "(<text>|<change>) ¦ (<text>|<change>|<change>) ¦ (<text>).<method> ¦ (<text> + <text>)"
    " ¦ (<any> ~ <any>)"
    " ¦ (<text>)[<slice>] ¦ <format> ¦ (<any>|string) ¦ (<items>|join(<text>)) ¦ (<any>|tojson(indent=1))"
    " ¦ (<text> * 2)",
    "change": "trim ¦ upper ¦ lower ¦ capitalize ¦ title ¦ string ¦ replace('a', 'xy') ¦ replace('', '.')"
    " ¦ safe ¦ escape"
    " ¦ forceescape ¦ indent ¦ indent(2, true) ¦ indent(3, blank=true) ¦ indent('> ') ¦ center(9) ¦ reverse"
    " ¦ truncate(5, true, '..', 0) ¦ truncate(4, false, '', 1) ¦ trim('ab') ¦ join('-') ¦ default('q')"
    " ¦ tojson"
    " ¦ replace('b', '<', 1) ¦ e ¦ d('z') ¦ replace(<text>, <text>)",
    "method": "strip() ¦ upper() ¦ title() ¦ replace('a', 'b', 1) ¦ replace('', '-') ¦ zfill(4)"
    " ¦ center(8, '*') ¦ ljust(5)"
    " ¦ rjust(6) ¦ join(['x', '<']) ¦ swapcase() ¦ lstrip('a ') ¦ removeprefix('a') ¦ capitalize()"
    " ¦ removesuffix('b')"
    " ¦ rstrip() ¦ lower() ¦ casefold() ¦ format(x, k='v') ¦ split()[0] ¦ rjust(<number>) ¦ strip(<text>)",
    "slice": "0 ¦ -1 ¦ x ¦ 1: ¦ ::-1 ¦ :2 ¦ -2: ¦ 1:9:2 ¦ : ¦ <number>|int:",
    "format": "'{}|{:>4}'.format(<text>, <text>) ¦ '{0:^7}{k!r:*<5}'.format(<any>, k=<text>)"
    " ¦ '{:05.1f}{:x}'.format(<number>, 7)"
    " ¦ '%s+%5s+%-4s' % (<text>, <number>, <text>) ¦ '%d%%%.2f' % (<number>, <number>) ¦ ('%s' % <any>)"
    " ¦ '%(b)s%(a)r' % d"
    " ¦ ('%s%s'|format(<text>, <any>)) ¦ ('<i>'|safe).format(<text>) ¦ (('<%s>'|safe) % <text>)"
    " ¦ '{:+,d}{{}}'.format(1234567)",
    "number": "(<number> <calc> <number>) ¦ -<number> ¦ (<any>|int) ¦ (<any>|int(7)) ¦ (<any>|float)"
    " ¦ (<number>|abs) ¦ +<number>"
    " ¦ (<number>|round) ¦ (<number>|round(1)) ¦ (<number>|round(1, 'floor')) ¦ (<items>|length)"
    " ¦ (<text>).count('a')"
    " ¦ (<text>).find(<text>) ¦ (<items>|list).count(1) ¦ (<number>|round(method='ceil'))"
    " ¦ ('0x1f'|int(base=16))",
    "calc": "+ ¦ - ¦ * ¦ / ¦ // ¦ %",
    "items": "(<items>|<shape>) ¦ [<any>, <any>] ¦ (<items>)[1:] ¦ (<items>)[::-1] ¦ (<text>).split(<sep>)"
    " ¦ (<text>).<split>"
    " ¦ (<pairs>|dictsort) ¦ (<pairs>|items|list) ¦ (<pairs>|list) ¦ (<pairs>.items()|list)"
    " ¦ <pairs>.values() ¦ <pairs>.keys()"
    " ¦ (o|<each>|list) ¦ (<items>|list + <items>|list) ¦ (<items>|map(<named>)|list) ¦ (<items>|list * 2)",
    "shape": "list ¦ reverse|list ¦ sort ¦ unique|list ¦ select|list ¦ select('string')|list"
    " ¦ reject('odd')|list ¦ batch(2)|list"
    " ¦ batch(3, 'f')|list ¦ slice(2)|list ¦ slice(2, 'f')|list ¦ sort(reverse=true) ¦ reject('none')|list"
    " ¦ select('in', [1, 'b'])|list",
    "each": "map(attribute='k') ¦ map(attribute='n.m', default=0) ¦ selectattr('n') ¦ groupby('k')"
    " ¦ rejectattr('k', '==', 2)"
    " ¦ selectattr('n', 'defined') ¦ sort(attribute='k') ¦ selectattr('k', 'gt', 1)"
    " ¦ unique(attribute='k') ¦ reverse",
    "named": "'upper' ¦ 'string' ¦ 'int' ¦ 'replace', 'a', 'o' ¦ 'length' ¦ 'default', 1 ¦ 'tojson'"
    " ¦ 'first'",
    "sep": " ¦ 'a' ¦ ' ', 1 ¦ none, 1 ¦ <text>",
    "split": "splitlines() ¦ partition(' ') ¦ rpartition('b') ¦ splitlines(true) ¦ rsplit(' ', 1) ¦ rsplit()",
    "pick": "first ¦ last ¦ min ¦ max ¦ sum ¦ join ¦ length ¦ list",
    "pairs": "{<text>: <any>} ¦ {'a': <any>, 'k': <any>} ¦ dict(<pairs>, a=<any>) ¦ <pairs>.copy()",
    "truth": "(<any> is <not><test>) ¦ (<number> <order> <number>) ¦ (<text> <order> <text>)"
    " ¦ (<text> <in> <text>) ¦ (<any> <in> <items>)"
    " ¦ not <any> ¦ (<text>).startswith(w[0]) ¦ (<text>).isupper() ¦ (<text>).istitle() ¦ (<any> == <any>)"
    " ¦ (1 < <number> <= 3)",
    "not": " ¦ not ",
    "test": "defined ¦ undefined ¦ none ¦ string ¦ number ¦ integer ¦ float ¦ boolean ¦ mapping ¦ iterable"
    " ¦ sequence ¦ true ¦ false"
    " ¦ in [1, 'a'] ¦ eq 1 ¦ ne 1 ¦ lower ¦ upper ¦ sameas none ¦ escaped ¦ callable ¦ equalto(<any>)",
    "order": "< ¦ > ¦ <= ¦ >= ¦ == ¦ !=",
    "in": "in ¦ not in",
    "space": " ¦  ¦ \n ¦ \n\n ¦ \t ¦ a ¦ b\n ¦ <i>\n ¦ \r\n ¦ \n  ¦ \u00a0",
    "open": "{% ¦ {% ¦ {%- ¦ {%+",
    "close": "%} ¦ %} ¦ -%} ¦ +%}",
    "print": "{{ ¦ {{ ¦ {{- ¦ {{+",
    "printed": "}} ¦ }} ¦ -}}",
    "body": "<statement><space><statement><space><statement> ¦ <space><statement>"
    " ¦ <statement><space><statement>",
    "name": "a ¦ b ¦ i ¦ c",
    "loop": "{{ loop.index }} ¦ {{ loop.last }} ¦ {{ loop.previtem }} ¦ {{ loop.cycle('p', 'q') }}"
    " ¦ {{ loop.changed(a) }}"
    " ¦ {{ loop.revindex0 }} ¦ {{ loop.depth }} ¦ <open> if <truth> <close><open> break <close>{% endif %}"
    " ¦ {% if loop.first %}<open> continue <close>{% endif %} ¦ ",
    "over": "i in <items> ¦ i in l ¦ a, b in d.items() ¦ i in <items> if <truth> ¦ i in l if i > 1"
    " ¦ k, (a, b) in {1: (2, 3)}.items()",
    "else": "<open> else <close><body> ¦  ¦ ",
    "params": "a, b='d' ¦ a ¦ a=x, b=a ¦  ¦ a=<any>",
    "extra": " ¦  ¦ {{ varargs }} ¦ {{ kwargs }} ¦ {{ caller is defined }}",
    "args": "1 ¦ x, b=2 ¦  ¦ 1, 2 ¦ a=l ¦ *w[:1] ¦ **{'a': 3} ¦ <any>",
    "statement": "<print> <any> <printed> ¦ <print> <any> <printed> ¦ <print> <text> <printed>"
    " ¦ <print> <number>, 1 <printed>"
    " ¦ {# <space> #} ¦ {#- {{ x }} -#} ¦ <open> raw <close><space>{{ x }}{% if <space><open> endraw <close>"
    " ¦ <open> if <truth> <close><body><else><open> endif <close>"
    " ¦ <open> if n <close>q<open> elif <truth> <close><body><else>{% endif %}"
    " ¦ <open> for <over> <close><body><loop><else><open> endfor <close>"
    " ¦ <open> for <over> <close><loop><body><open> endfor <close>"
    " ¦ {% for i in [[1, [2]], 3] recursive %}{{ loop.depth0 }}{% if i is iterable %}{{ loop(i) }}{% else %}<body>{% endif %}{% endfor %}"
    " ¦ <open> set <name> = <any> <close> ¦ <open> set a, b = <any>, x <close>"
    " ¦ <open> set ns.v = <any> <close>"
    " ¦ <open> set <name> <close><body><open> endset <close> ¦ {% set b | <change> %}<body>{% endset %}"
    " ¦ <open> macro m(<params>) <close><body><extra><open> endmacro <close>{{ m(<args>) }}"
    " ¦ {% macro f(<params>) %}<body>{% endmacro %}<body>{{ f(<args>)|<change> }}"
    " ¦ {% macro c(a) %}(<body>{{ caller(<args>) }}){% endmacro %}<open> call(i=1) c(<args>) <close><body><open> endcall <close>"
    " ¦ <open> filter <change>|<change> <close><body><open> endfilter <close>"
    " ¦ <open> generation <close><body><open> endgeneration <close>"
    " ¦ <open> with a=<any>, b=a <close><body>{% endwith %} ¦ {% print <any>, x %}",
}  # fmt: skip
WAYS = {kind: ways.split(" ¦ ") for kind, ways in GRAMMAR.items()}
ENDS = {kind: ways.split(" ¦ ") for kind, ways in LEAVES.items()}
MAX_PARTS = 60


def written(rng: random.Random, kind: str) -> str:
    """One part of a kind. After MAX_PARTS, every open part becomes a leaf."""
    parts = 0

    def part(kind: str, depth: int) -> str:
        nonlocal parts
        parts += 1
        end = depth <= 0 or parts > MAX_PARTS
        way = rng.choice(ENDS[kind] if end and kind in ENDS else WAYS[kind])
        return PART.sub(lambda m: part(m[1], depth - 1) if m[1] in WAYS else m[0], way)

    return part(kind, 5)


def source(seed: int) -> str:
    """The template of a seed: an expression alone, or statements."""
    rng = random.Random(seed)
    if seed % 2:
        return f"[{{{{ {written(rng, 'any')} }}}}]"
    return "{% set ns = namespace(v=0) %}" + written(rng, "body") + "{{ ns.v }}{{ a }}"
