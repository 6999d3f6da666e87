"""The action language: what compiles to which contract, and everything that is refused, with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.actions.language import compile_contracts, implied_contract, scaffold
from agent_infra.actions.language.parameters import equal_json
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.content import fingerprint
from agent_infra.documents import parse_documents, survey_documents
from agent_infra.errors import ContractErrors, ToolUnknown

INPUT = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "units": {"type": "string", "enum": ["metric", "imperial"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "metric": {"type": "boolean"},
        "where": {"$ref": "#/$defs/place"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {
        "place": {"type": "object", "properties": {"code": {"type": "string"}, "near": {"$ref": "#/$defs/place"}}}
    },
}
OUTPUT = {"type": "object", "properties": {"temp": {"type": "number"}}}

WEATHER = """\
name: get_weather
tool: openweathermap_api
params:
  city: ${state.nodes.user_intent.data.city}        # resolved from the graph
  units: {open: {enum: [metric, imperial]}}
preconditions:  ["state.nodes.user_intent.data.confidence > 0.8"]
postconditions: ["result.temp != null"]
confidence: {min: 0.6, below: ask_human}
resources: {cpu: 1, memory_mb: 512, gpu: 0}
effects: none
refers: {city: "${params.city}"}
timeout: 30s
result: {type: api_response, key: "weather/${params.city}", ttl: 1800}
"""


def call(**params):
    return {"temp": 22.0}


def weather_tool(**changes) -> Tool:
    return Tool(**{"name": "openweathermap_api", "input_schema": INPUT, "output_schema": OUTPUT, "run": call} | changes)


@pytest.fixture
def tools() -> ToolRegistry:
    registry = ToolRegistry()
    registry.searched.append("tools.py (1 tool)")
    registry.register(weather_tool())
    return registry


def compiled(text: str, tools: ToolRegistry):
    (contract,) = compile_contracts(parse_documents(text, "weather.yaml"), tools)
    return contract


def problems(text: str, tools: ToolRegistry):
    documents, found = survey_documents(text, "weather.yaml")
    with pytest.raises(ContractErrors) as caught:
        compile_contracts(documents, tools, found)
    return list(caught.value.problems)


def problem(text: str, tools: ToolRegistry):
    (found,) = problems(text, tools)
    return found


def action(*lines: str) -> str:
    """An action that is right but for the given lines; `params:` is added unless one of them has it."""
    params = "" if any(line.startswith("params") for line in lines) else "params: {city: Beijing}\n"
    return f"name: a\ntool: openweathermap_api\n{params}" + "\n".join(lines) + "\n"


STATE = {"state": {"nodes": {"user_intent": {"data": {"city": "北京", "confidence": 0.95}}}}}
BINDINGS = STATE | {"agent": {"name": None}, "now": "2026-11-30T00:00:00+00:00"}


# -- what an action file means -----------------------------------------------------------------------------------------


def test_the_weather_action(tools):
    contract = compiled(WEATHER, tools)
    assert (contract.name, contract.tool, contract.tool_version) == ("get_weather", "openweathermap_api", "1.0.0")
    assert list(contract.given) == ["city"]
    assert list(contract.open) == ["units"]
    assert contract.required_open == ()
    assert [condition.source for condition in contract.preconditions] == [
        "state.nodes.user_intent.data.confidence > 0.8"
    ]
    assert contract.preconditions[0].evaluate(BINDINGS).holds
    assert contract.postconditions[0].evaluate({"result": {"temp": 22}}).holds
    assert (contract.confidence.min, contract.confidence.below, contract.confidence.needs) == (
        0.6,
        "ask_human",
        "ask_human",
    )
    assert contract.resources == {"cpu": 1, "memory_mb": 512, "gpu": 0}
    assert (contract.effects, contract.timeout.total, contract.timeout.idle) == ("none", 30, None)
    assert (contract.result.type, contract.result.ttl) == ("api_response", 1800)
    assert contract.result.key_for(BINDINGS | {"params": {"city": "北京"}}).value == "weather/北京"
    assert contract.references(BINDINGS | {"params": {"city": "北京"}}) == [("city", "北京")]
    assert contract.file == "weather.yaml"
    read = {path for reading in contract.readings for path in reading.reads}
    assert ("state", "nodes", "user_intent", "data", "city") in read
    assert ("state", "nodes", "user_intent", "data", "confidence") in read


def test_params_are_resolved(tools):
    contract = compiled(WEATHER, tools)
    assert contract.resolve(BINDINGS, {"units": "metric"}) == ({"city": "北京", "units": "metric"}, [])
    assert contract.resolve(BINDINGS, {}) == ({"city": "北京"}, [])
    assert contract.resolve(BINDINGS, {"city": "北京"}) == ({"city": "北京"}, [])


@pytest.mark.parametrize(
    ("fill", "reason"),
    [
        ({"units": "kelvin"}, '/units: "kelvin" is not one of "metric" or "imperial"'),
        ({"city": "上海"}, "/city: it is given by the contract, as '北京', not '上海'"),
        ({"town": "x"}, "/town: get_weather has no parameter of that name"),
    ],
)
def test_params_that_may_not_be(tools, fill, reason):
    assert compiled(WEATHER, tools).resolve(BINDINGS, fill)[1] == [reason]


def test_all_reasons_against_params_come_at_once(tools):
    contract = compiled(
        "name: a\ntool: openweathermap_api\nparams: {city: {open: {}}, days: '${state.nodes.x.n}'}\n", tools
    )
    assert contract.resolve({"state": {"nodes": {}}}, {}) == (
        {},
        ["/days: `state.nodes.x` is absent", "/city: it is left open, and nothing fills it"],
    )


def test_what_is_unsaid(tools):
    contract = compiled(action(), tools)
    assert (contract.effects, contract.result, contract.confidence) == ("once", None, None)
    assert contract.resources == {"gpu": 0}
    assert (contract.timeout.idle, contract.timeout.total) == (None, None)
    assert contract.resolve({}, {}) == ({"city": "Beijing"}, [])


def test_the_tool_says_what_the_file_does_not():
    tools = ToolRegistry()
    tools.register(weather_tool(effects="idempotent", resources={"cpu": 2, "gpu": 1}, version="2.1.0"))
    contract = compiled(action("resources: {cpu: 4}"), tools)
    assert (contract.effects, contract.tool_version) == ("idempotent", "2.1.0")
    assert contract.resources == {"cpu": 4, "gpu": 1}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("24h", 86400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("90", 90),
        ("0.5", 0.5),
        ("2d", 172800),
    ],
)
def test_durations(tools, written, seconds):
    assert compiled(action(f"timeout: {written}"), tools).timeout.total == seconds
    assert compiled(action(f"result: {{type: x, ttl: {written}}}"), tools).result.ttl == seconds
    both = compiled(action(f"timeout: {{idle: {written}, total: 10d}}"), tools).timeout
    assert (both.idle, both.total) == (seconds, 864000)


@pytest.mark.parametrize(
    ("written", "below", "needs"),
    [
        ("{min: 0.6}", "ask_human", "ask_human"),
        ("{min: 0.6, below: reject}", "reject", None),
        ("{min: 0.6, below: {fallback: 查询}}", "fallback", "查询"),
    ],
)
def test_confidence_rules(tools, written, below, needs):
    rule = compiled(action(f"confidence: {written}"), tools).confidence
    assert (rule.min, rule.below, rule.needs) == (0.6, below, needs)


def test_scalars_under_text_keep_their_spelling(tools):
    text = "params: {city: 1.10, days: 010, metric: true, where: {code: 0777}, tags: [1.0, NO]}"
    params, wrong = compiled(action(text), tools).resolve({}, {})
    assert not wrong
    assert params == {"city": "1.10", "days": 10, "metric": True, "where": {"code": "0777"}, "tags": ["1.0", "NO"]}
    assert type(params["days"]) is int


def test_references_inside_lists_and_objects(tools):
    contract = compiled(
        action('params: {city: x, where: {code: "${state.nodes.a.code}"}, tags: ["${state.nodes.b.t}", y]}'), tools
    )
    bindings = {"state": {"nodes": {"a": {"code": "北"}, "b": {"t": "z"}}}}
    assert contract.resolve(bindings, {})[0] == {"city": "x", "where": {"code": "北"}, "tags": ["z", "y"]}


def test_domains_from_the_graph(tools):
    contract = compiled(
        action(
            'params: {city: {open: {choices: "${state.nodes.a.cities}"}},\n'
            '         days: {open: {maximum: "${state.nodes.a.most}"}}}'
        ),
        tools,
    )
    bindings = {"state": {"nodes": {"a": {"cities": ["北京", "上海"], "most": 3}}}}
    assert contract.resolve(bindings, {"city": "上海", "days": 3}) == ({"city": "上海", "days": 3}, [])
    assert len(contract.resolve(bindings, {"city": "广州", "days": 4})[1]) == 2
    assert contract.required_open == ("city",)


def test_several_documents_are_several_contracts(tools):
    text = f"# first\n{WEATHER}---\n# second\n{action('effects: idempotent')}"
    first, second = compile_contracts(parse_documents(text, "all.yaml"), tools)
    assert (first.name, second.name) == ("get_weather", "a")
    for contract in (first, second):
        assert compiled(contract.source, tools) == contract


# -- identity ----------------------------------------------------------------------------------------------------------


def test_the_source_compiles_to_an_equal_contract(tools):
    contract = compiled(WEATHER, tools)
    again = compiled(contract.source, tools)
    assert again.hash == contract.hash
    assert again == contract
    assert {again, contract} == {contract}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("timeout: 30s", "timeout: {total: 0.5m}"),
        ("ttl: 1800", "ttl: 30m"),
        ("gpu: 0}", "gpu: 0.0}"),
        ("effects: none", "effects: 'none' # quoted"),
        (", below: ask_human", ""),
        ("preconditions:  [", "preconditions: ["),
    ],
)
def test_spelling_does_not_change_the_hash(tools, old, new):
    assert old in WEATHER
    assert compiled(WEATHER.replace(old, new), tools).hash == compiled(WEATHER, tools).hash


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: get_weather", "name: weather"),
        ("> 0.8", "> 0.7"),
        ("imperial]", "imperial, metric]"),
        ("{min: 0.6", "{min: 0.7"),
        ("cpu: 1", "cpu: 2"),
        ("effects: none", "effects: once"),
        ("30s", "31s"),
        ("ttl: 1800", "ttl: 1801"),
        ("result.temp", "result.temperature"),
        ('refers: {city: "${params.city}"}\n', ""),
        ("{open: {enum: [metric, imperial]}}", "metric"),
    ],
)
def test_meaning_changes_the_hash(tools, old, new):
    assert old in WEATHER
    assert compiled(WEATHER.replace(old, new), tools).hash != compiled(WEATHER, tools).hash


def test_a_hash_that_a_run_recorded_stays_what_it_was(tools):
    assert compiled(WEATHER, tools).hash == "a4f40b8c3bde0216"


def test_the_tool_is_part_of_the_meaning(tools):
    hashes = {compiled(WEATHER, tools).hash}
    for change in (
        {"version": "1.0.1"},
        {"output_schema": {}},
        {"input_schema": INPUT | {"required": ["city", "units"]}},
    ):
        other = ToolRegistry()
        other.register(weather_tool(**change))
        hashes.add(compiled(WEATHER, other).hash)
    assert len(hashes) == 4


def test_a_tool_without_a_file_has_an_implied_contract(tools):
    tool = tools.get("openweathermap_api")
    contract = implied_contract(tool)
    assert contract.name == contract.tool == tool.name
    assert set(contract.open) == set(INPUT["properties"])
    assert contract.required_open == ("city",)
    assert compiled(contract.source, tools) == contract
    assert compiled(scaffold(tool), tools) == contract


def test_a_tool_that_takes_anything(tools):
    tools.register(Tool("any", {"type": "object", "additionalProperties": {"type": "integer"}}, None, call))
    contract = compiled("name: a\ntool: any\nparams: {城市: 5, x: {open: {maximum: 3}}}", tools)
    assert contract.resolve({}, {"x": 2}) == ({"城市": 5, "x": 2}, [])
    assert contract.resolve({}, {"x": 4})[1] == ["/x: 4 is greater than the maximum of 3"]


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_the_two_wrong_spellings_of_a_reference(tools):
    for wrong in ("$state.nodes.user_intent.data.city", "{state.nodes.user_intent.data.city}"):
        text = WEATHER.replace("${state.nodes.user_intent.data.city}", wrong)
        found = problem(text, tools)
        assert (found.code, found.file, found.line, found.column) == ("ReferenceSpelling", "weather.yaml", 4, 9)
        assert found.hint == "write `${state.nodes.user_intent.data.city}`"
        assert found.source == text.splitlines()[3]
        assert str(found).splitlines()[2] == " " * 12 + "^"


@pytest.mark.parametrize(
    ("lines", "code", "place", "hint"),
    [
        (["efects: none"], "UnknownKey", (4, 1), "did you mean `effects`?"),
        (["effects: nome"], "UnknownWord", (4, 10), "did you mean `none`?"),
        (["effects: [none]"], "UnknownWord", (4, 10), None),
        (["params: {city: x, unit: metric}"], "ParamUnknown", (3, 19), "did you mean `units`?"),
        (["params: {city: [x]}"], "ParamType", (3, 16), None),
        (["params: {city: null}"], "ParamType", (3, 16), None),
        (["params: {city: x, days: two}"], "ParamType", (3, 25), None),
        (["params: {city: x, days: 15}"], "ParamType", (3, 25), None),
        (["params: {city: x, days: '3'}"], "ParamType", (3, 25), None),
        (["params: {city: x, where: {code: [1]}}"], "ParamType", (3, 33), None),
        (["params: {city: x, where: {near: {code: [1]}}}"], "ParamType", (3, 40), None),
        (["params: {city: x, tags: [a, [b]]}"], "ParamType", (3, 29), None),
        (['params: {city: x, days: "${state.nodes.a.n} days"}'], "ParamType", (3, 25), "nothing but the reference"),
        (["params: {units: metric}"], "ParamMissing", (3, 1), "`city: {open: {}}`"),
        (["params: [city]"], "WrongType", (3, 9), None),
        (['params: {city: "${stat.nodes.x}"}'], "ExpressionName", (3, 19), "did you mean `state`?"),
        (['params: {city: "${params.units}"}'], "ExpressionName", (3, 19), "the names here are state, agent, now"),
        (['params: {city: "${state.nodes[agent.name]}"}'], "DynamicPath", (3, 24), "name the node"),
        (["params: {city: {open: {enums: [x]}}}"], "UnknownKey", (3, 24), "did you mean `enum`?"),
        (["params: {city: {opne: {}}}"], "ParamType", (3, 16), None),
        (["params: {city: {open: null}}"], "WrongType", (3, 23), None),
        (["params: {city: {open: {enum: []}}}"], "BadDomain", (3, 30), None),
        (["params: {city: {open: {enum: [1, [2]]}}}"], "ParamType", (3, 34), None),
        (["params: {city: x, days: {open: {maximum: ten}}}"], "BadDomain", (3, 42), None),
        (["params: {city: x, units: {open: {enum: [kelvin]}}}"], "ParamType", (3, 41), None),
        (['params: {city: {open: {enum: [x], choices: "${state.nodes.a.b}"}}}'], "BadDomain", (3, 23), "keep one"),
        (['params: {city: {open: {choices: "$state.nodes.a.b"}}}'], "ReferenceSpelling", (3, 34), "${state.nodes.a.b}"),
        (['preconditions: ["state.nodes.a.n >"]'], "ExpressionSyntax", (4, 35), None),
        (['preconditions: ["size(state.nodes.a.n)"]'], "NotBoolean", (4, 18), "compare it"),
        (['preconditions: ["result.temp > 1"]'], "ExpressionName", (4, 18), "the names here"),
        (['preconditions: ["params.town == 1"]'], "ParamUnknown", (4, 18), "known are city"),
        (["preconditions: state.nodes.a.n > 1"], "WrongType", (4, 16), None),
        (["preconditions: [{a: b}]"], "WrongType", (4, 17), None),
        (["preconditions: [null]"], "WrongType", (4, 17), None),
        (['postconditions: ["result.temp != nul"]'], "ExpressionName", (4, 34), None),
        (["postconditions: [result.temp != null, size(a, b)]"], "FlowComma", (4, 39), "put quotes round"),
        (["confidence: {min: 2}"], "WrongType", (4, 19), None),
        (["confidence: {below: reject}"], "KeyMissing", (4, 13), "write `min: 0.6`"),
        (["confidence: {min: 0.5, below: human}"], "UnknownWord", (4, 31), "did you mean `ask_human`?"),
        (["confidence: 0.5"], "WrongType", (4, 13), None),
        (["resources: {gpus: 1}"], "UnknownKey", (4, 13), "did you mean `gpu`?"),
        (["resources: {gpu: -1}"], "WrongType", (4, 18), None),
        (["resources: {memory_mb: 512MB}"], "WrongType", (4, 24), None),
        (["timeout: 30 parsecs"], "BadDuration", (4, 10), "write 30s"),
        (["timeout: -1"], "BadDuration", (4, 10), "write 30s"),
        (["timeout: 0s"], "BadDuration", (4, 10), None),
        (["timeout: {idel: 3s}"], "UnknownKey", (4, 11), "did you mean `idle`?"),
        (["result: {key: x}"], "KeyMissing", (4, 9), "write `type: …`"),
        (["result: {type: x, ttl: soon}"], "BadDuration", (4, 24), None),
        (['result: {type: x, key: "{params.city}"}'], "ReferenceSpelling", (4, 25), "write `${params.city}`"),
        (['result: {type: x, key: "a/${params.town}"}'], "ParamUnknown", (4, 29), None),
        (["refers: [city]"], "WrongType", (4, 9), None),
        (['refers: {city: "${result.x}"}'], "ExpressionName", (4, 19), None),
    ],
)  # fmt: skip
def test_refused_with_its_place(tools, lines, code, place, hint):
    found = problem(action(*lines), tools)
    assert (found.code, found.line, found.column) == (code, *place), found
    assert hint is None or hint in found.hint


def test_all_problems_of_all_documents_in_one_go(tools):
    text = (
        "name: get weather\ntool: openweathermap_api\nparams:\n  city: $state.nodes.x\n  unitz: metric\n"
        "preconditions: ['1 + 1', 'foo > 1']\neffects: nome\nrefers: {a: {state.nodes.x}, b: '${params.ciy}'}\n"
        "---\nname: b\ntool: nope\n---\njust text\n---\ntool: openweathermap_api\n"
    )
    found = [(each.code, each.line) for each in problems(text, tools)]
    assert found == [
        ("BadName", 1),
        ("ReferenceSpelling", 4),
        ("ParamUnknown", 5),
        ("NotBoolean", 6),
        ("ExpressionName", 6),
        ("UnknownWord", 7),
        ("ReferenceSpelling", 8),
        ("ParamUnknown", 8),
        ("ToolUnknown", 11),
        ("WrongType", 13),
        ("KeyMissing", 15),
        ("ParamMissing", 15),
    ]


def test_the_errors_read_well(tools):
    with pytest.raises(ContractErrors) as caught:
        compiled(action("efects: none"), tools)
    assert str(caught.value) == (
        "[ContractErrors] 1 problem in the action file:\n"
        "weather.yaml:4:1: UnknownKey: there is no key `efects` in the file\n"
        "    efects: none\n"
        "    ^\n"
        "    hint: did you mean `effects`?"
    )


def test_two_actions_of_one_name(tools):
    text = f"{WEATHER}---\n{WEATHER}"
    found = problem(text, tools)
    assert (found.code, found.line) == ("DuplicateAction", 15)
    assert "weather.yaml:1" in found.message


def test_a_file_may_not_call_a_tool_more_harmless_than_it_is():
    tools = ToolRegistry()
    tools.register(weather_tool(effects="once"))
    found = problem(action("effects: none"), tools)
    assert (found.code, found.hint) == ("EffectsConflict", "write `once`")
    assert compiled(action("effects: once"), tools).effects == "once"


def test_nothing_but_an_unknown_tool(tools):
    with pytest.raises(ToolUnknown) as caught:
        compiled("name: a\ntool: openweather_api\n", tools)
    assert caught.value.where == "weather.yaml:2:7"
    assert "tools.py" in str(caught.value)
    assert "openweathermap_api" in str(caught.value)


# -- properties --------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e300, 1e300) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(JSON, JSON)
def test_equality_is_that_of_json(a, b):
    assert equal_json(a, a)
    assert equal_json(a, b) == equal_json(b, a)
    assert equal_json([a], [b]) == equal_json({"k": a}, {"k": b}) == equal_json(a, b)
    if fingerprint(a) == fingerprint(b):
        assert equal_json(a, b)


def test_json_tells_true_from_one_and_not_one_from_one():
    assert equal_json(1, 1.0)
    assert not equal_json(1, True)
    assert not equal_json([0], [False])


def test_a_condition_that_no_schema_can_hold_is_told(tools, caplog):
    conditions = "preconditions: ['params.days > 2', \"params.units == 'metric'\"]"
    compiled(action("params: {city: x, days: {open: {}}, units: {open: {}}}", conditions), tools)
    (said,) = [record.getMessage() for record in caplog.records if "condition_outside_schema" in record.getMessage()]
    assert "condition='params.days > 2' open=['days']" in said
