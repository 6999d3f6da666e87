"""Secrets: tools get them, and no byte of what is stored holds them."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_infra import ActionResult, CallContext, Infra, StateGraph, Tool, background
from agent_infra.actions import ActionLibrary, EvidenceStore, Orchestrator, Secrets, ToolRegistry
from agent_infra.actions.executors import Call, ExecutorPool, LocalExecutor, Outcome
from agent_infra.actions.tools import Isolation, make_tool
from agent_infra.config import Project
from agent_infra.errors import SecretMissing, SecretUnusable, ToolInvalid
from agent_infra.state import BlobStore, StateEngine
from agent_infra.state.stores import MemoryStore

from . import secret_tools

CANARY = 'kanari-9f"3\\b7+/密钥=='
MARKER = "不是秘密-marker-4711"
SETTINGS = {"api_key": "secret://OPENWEATHER", "unit": "metric"}


@pytest.fixture
def plain_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Infra]:
    """A home whose store isn't compressed, so that a search of its files sees what they hold."""
    monkeypatch.setenv("AGENT_INFRA_SECRET_OPENWEATHER", CANARY)
    settings: dict[str, Any] = {"durability": "os", "state": {"rocksdb": {"compression": "none"}}}
    with Infra.open(tmp_path / "家", project=Project(root=tmp_path), **settings) as opened:
        yield opened


def add(infra: Infra, function: Callable[..., Any], isolation: Isolation = "none", **options: Any) -> str:
    name = f"{function.__name__}-{isolation}"
    infra.tools.register(
        make_tool(function, name=name, effects="none", isolation=isolation, settings=SETTINGS, **options)
    )
    return name


def call(infra: Infra, name: str, graph: StateGraph, about: str = MARKER, more: str = "") -> ActionResult:
    infra.actions.load(f"name: {name}-a\ntool: {name}\nparams: {{about: {{open: {{}}}}}}\neffects: none\n{more}")
    return infra.actions.execute({"tool": f"{name}-a", "params": {"about": about}}, graph)


def all_bytes(home: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file())


def forms(secret: str) -> list[bytes]:
    raw = secret.encode()
    texts = [secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], repr(raw)[2:-1]]
    texts += [json.dumps(secret, ensure_ascii=False)[1:-1]]
    encoded = [base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3)]
    return [text.encode() for text in texts] + encoded + [base64.urlsafe_b64encode(raw)[:-4]]


# -- nothing of it is stored -----------------------------------------------------------------------


def test_no_byte_of_the_home_holds_the_secret(plain_home: Infra, tmp_path: Path) -> None:
    infra = plain_home
    graph = infra.session("会话", agent="planner")
    graph.add_node("user_intent", {"query": MARKER})
    done: list[ActionResult] = []
    for isolation in ("none", "process"):
        say = add(infra, secret_tools.say_all, isolation)
        node = "result: {type: api_response, key: 'k/${params.about}'}\npostconditions: ['result.plain != null']\n"
        done.append(call(infra, say, graph, more=node))
        done.append(call(infra, say, graph, about=f"参数里也有 {CANARY}", more=node))
        done.append(call(infra, say, graph, more="postconditions: ['result.plain == \"\"']\n"))
        done.append(call(infra, say, graph, about=CANARY, more="preconditions: ['params.about == \"\"']\n"))
        done.append(call(infra, add(infra, secret_tools.fail_with_it, isolation), graph))
        done.append(call(infra, add(infra, secret_tools.chat_too_much, isolation), graph))
        done.append(call(infra, add(infra, secret_tools.wait_for_ever, isolation), graph, more="timeout: 300ms\n"))
    done.append(call(infra, add(infra, secret_tools.die, "process"), graph))
    assert [result.status for result in done] == [
        *(["succeeded", "succeeded", "failed", "refused", "failed", "succeeded", "timed_out"] * 2),
        "failed",
    ]
    assert done[0].output["plain"] == "secret://OPENWEATHER"
    assert done[0].output["told"] == MARKER
    assert done[0].output["length"] == len(CANARY), "the tool itself had the value"
    with (tmp_path / "家" / "export.jsonl").open("wb") as file:
        infra.backend.export_session("会话", file)
    infra.evidence.export(done[-1].evidence_cid, tmp_path / "家" / "all.car", chain=True)
    infra.close()
    stored = all_bytes(tmp_path / "家")
    assert stored.count(MARKER.encode()) > 20, "the search sees what is stored"
    assert b"secret://OPENWEATHER" in stored
    for form in forms(CANARY):
        assert form not in stored, form
    for result in done:
        assert CANARY not in repr(result)


def test_everything_said_about_a_call_is_clean(plain_home: Infra) -> None:
    graph = plain_home.session("会话")
    result = call(plain_home, add(plain_home, secret_tools.fail_with_it, "process"), graph)
    bundle = plain_home.evidence.get(result.evidence_cid)
    assert bundle["tool"]["settings"] == SETTINGS
    assert "401 for key 'secret://OPENWEATHER'" in bundle["error"]["what"]
    assert "secret://OPENWEATHER" in bundle["error"]["traceback"]
    assert bundle["stderr_tail"] == "secret://OPENWEATHER\n"
    assert CANARY not in plain_home.evidence.why(graph, result.action).text()


@pytest.mark.parametrize("cut", [1, 5, 9, 12, 17, 18, 19, 20])
def test_printed_text_that_was_cut_in_the_middle_of_the_secret_is_clean(plain_home: Infra, cut: int) -> None:
    name = add(plain_home, secret_tools.end_in_the_middle, "process")
    result = call(plain_home, name, plain_home.session("会话"), about=str(cut))
    assert result.ok, result
    tail = plain_home.evidence.get(result.evidence_cid)["stderr_tail"]
    head, _, rest = tail.partition("\n")
    assert head == f"… {cut} bytes before …"
    assert rest.startswith("…secret://OPENWEATHER..." if cut < 17 else ("…secret://OPENWEATHER...", "…..."))


def test_an_error_that_quotes_a_parameter_is_clean(plain_home: Infra) -> None:
    @plain_home.tools.tool(effects="none")
    def narrow(about: Literal["wind", "regen"]) -> str:
        """Know two words."""
        return about

    result = call(plain_home, "narrow", plain_home.session("会话"), about=CANARY)
    assert result.status == "refused"
    assert "secret://OPENWEATHER" in (result.error or {})["why"]
    assert CANARY not in repr(result)


# -- the tool gets it ------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_tool_gets_its_settings_with_the_values(plain_home: Infra, isolation: Isolation) -> None:
    result = call(plain_home, add(plain_home, secret_tools.settings_seen, isolation), plain_home.session("会话"))
    assert result.output["reversed"] == CANARY[::-1]
    assert result.output["unit"] == "metric"
    if isolation == "process":
        assert result.output["environment"] == [], "a worker holds the secrets of no other tool"


def test_a_parameter_that_is_a_secret_reaches_the_tool_and_is_not_recorded(plain_home: Infra) -> None:
    seen: list[str] = []

    @plain_home.tools.tool(effects="none")
    def listen(about: str) -> int:
        """Listen."""
        seen.append(about)
        return len(about)

    graph = plain_home.session("会话")
    result = call(plain_home, "listen", graph, about=f"令牌 {CANARY}")
    assert seen == [f"令牌 {CANARY}"]
    (made,) = graph.nodes(type="call")
    assert made.data["params"] == {"about": "令牌 secret://OPENWEATHER"}
    assert made.data["hidden"] is True
    assert plain_home.evidence.get(result.evidence_cid)["params"] == made.data["params"]
    again = background.wait_for(
        plain_home.actions.aexecute(f"{made.data['action']}", graph, repeat=made), twin="aexecute"
    )
    assert (again.status, again.error and again.error["code"]) == ("refused", "ParametersHidden")
    assert len(seen) == 1, "never run with other parameters than it was called with"


def test_a_file_of_the_home_holds_a_secret(infra: Infra, graph: StateGraph) -> None:
    folder = infra.home / "secrets"
    folder.mkdir()
    path = folder / "OPENWEATHER"
    path.write_text("aus-der-datei-77\n", encoding="utf-8")
    path.chmod(0o600)
    name = add(infra, secret_tools.settings_seen)
    assert call(infra, name, graph).output["reversed"] == "aus-der-datei-77"[::-1]
    path.write_text("nach-dem-wechsel-78", encoding="utf-8")
    assert call(infra, name, graph).output["reversed"] == "nach-dem-wechsel-78"[::-1]
    both = infra.secrets.clean("aus-der-datei-77 nach-dem-wechsel-78")
    assert both == "secret://OPENWEATHER secret://OPENWEATHER", "the older value may still turn up"


# -- what is refused -------------------------------------------------------------------------------


def test_a_missing_secret_refuses_the_call_before_anything_happens(infra: Infra, graph: StateGraph) -> None:
    result = call(infra, add(infra, secret_tools.die), graph)
    assert result.status == "refused"
    assert result.error is not None
    assert result.error["code"] == "SecretMissing"
    assert "AGENT_INFRA_SECRET_OPENWEATHER" in result.error["why"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused_and_its_value_still_hidden(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "TOKEN"
    path.write_text("lesbar-fuer-alle", encoding="utf-8")
    path.chmod(mode)
    secrets = Secrets(tmp_path)
    with pytest.raises(SecretUnusable, match=f"{mode:04o}") as caught:
        secrets.get("TOKEN")
    assert "chmod 600" in str(caught.value)
    assert "lesbar" not in str(caught.value)
    assert secrets.clean(["lesbar-fuer-alle"]) == ["secret://TOKEN"]
    path.chmod(0o600)
    assert secrets.get("TOKEN") == "lesbar-fuer-alle"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a.b", "名", "x" * 129])
def test_a_name_is_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(SecretUnusable):
        Secrets(tmp_path).resolve(f"secret://{name}")


def test_a_value_too_short_to_be_hidden_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_INFRA_SECRET_PIN", "12345")
    with pytest.raises(SecretUnusable, match="5 characters") as caught:
        Secrets().get("PIN")
    assert "12345" not in str(caught.value)
    with pytest.raises(SecretMissing):
        Secrets().get("PUK")


def test_settings_are_json() -> None:
    with pytest.raises(ToolInvalid, match="settings"):
        Tool("x", {"type": "object"}, None, lambda: None, settings={"key": object()})


def test_what_is_on_its_way_to_an_executor_shows_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_INFRA_SECRET_TOKEN", "streng-geheim")
    sealed = Secrets().seal({"key": "secret://TOKEN", "list": ["secret://TOKEN", 1]})
    assert "streng" not in repr(sealed)
    assert sealed.open() == {"key": "streng-geheim", "list": ["streng-geheim", 1]}


# -- hiding ----------------------------------------------------------------------------------------

VALUES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=6, max_size=40)


def hiding(value: str, **others: str) -> Secrets:
    with pytest.MonkeyPatch.context() as patch:
        for name, each in {"VALUE": value, **others}.items():
            if "\0" not in each:
                patch.setenv(f"AGENT_INFRA_SECRET_{name}", each)
        return Secrets()


@given(value=VALUES, before=st.text(max_size=5), after=st.text(max_size=5))
def test_a_secret_is_found_in_every_form_inside_any_text(value: str, before: str, after: str) -> None:
    assume("\0" not in value and before.isprintable() and after.isprintable())
    secrets = hiding(value)
    whole = before + value + after
    encodable = whole.encode(errors="replace")
    for text in (whole, quote(encodable, safe=""), json.dumps(whole), base64.b64encode(encodable).decode()):
        cleaned = secrets.clean({"a": [text]})["a"][0]
        assert "secret://VALUE" in cleaned
        assert value not in cleaned.replace("secret://VALUE", "")


@given(value=st.recursive(st.none() | st.integers() | st.text(max_size=8), lambda part: st.lists(part, max_size=3)))
def test_what_holds_no_secret_is_left_as_it_is(value: Any) -> None:
    assert hiding("niemals-da-4711").clean(value) is value


def test_the_longer_of_two_secrets_is_named() -> None:
    secrets = hiding("geheim-1", LONG="geheim-1-und-mehr")
    assert secrets.clean("geheim-1 geheim-1-und-mehr") == "secret://VALUE secret://LONG"


def test_the_lines_of_a_longer_secret_are_hidden_too() -> None:
    pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----"
    secrets = hiding(pem)
    assert secrets.clean(f"key:\n{pem}\n.") == "key:\nsecret://VALUE\n."
    assert "AQEFAASCBKcwggSjAgEAAoIB" not in secrets.clean("  AQEFAASCBKcwggSjAgEAAoIB")


@pytest.mark.parametrize("cut", range(1, 10))
def test_a_secret_that_a_tail_cuts_through_is_hidden(cut: int) -> None:
    secrets = hiding("abcdefghijklm")
    cleaned = secrets.clean_tail(f"… 90 bytes before …\n{'abcdefghijklm'[cut:]} and abcdefghijklm")
    assert cleaned == "… 90 bytes before …\n…secret://VALUE and secret://VALUE"


def test_a_contract_and_its_hash_know_no_secret(plain_home: Infra, monkeypatch: pytest.MonkeyPatch) -> None:
    name = add(plain_home, secret_tools.settings_seen)
    call(plain_home, name, plain_home.session("会话"))
    first = plain_home.actions.get(f"{name}-a")
    monkeypatch.setenv("AGENT_INFRA_SECRET_OPENWEATHER", "ein-ganz-anderer")
    call(plain_home, name, plain_home.session("会话"))
    assert plain_home.actions.get(f"{name}-a").hash == first.hash
    assert "secret://" not in json.dumps(plain_home.tools.get(name).definition())


def test_a_secrets_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "TOKEN"
    path.write_text("nur-fuer-mich", encoding="utf-8")
    path.chmod(0o400)
    assert Secrets(tmp_path).get("TOKEN") == "nur-fuer-mich"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400


def test_call_context_without_settings_has_none() -> None:
    assert CallContext("key").settings == {}


def test_a_secret_that_only_the_executor_asks_for_fails_the_call_on_record() -> None:
    class Asking(LocalExecutor):
        """Stands for an executor that resolves what a server or an image declares."""

        async def execute(self, call: Call) -> Outcome:
            Secrets().get("NOT_THERE")
            return await super().execute(call)

    engine, tools = StateEngine(MemoryStore(), durability="os"), ToolRegistry()
    blobs = engine.blobs = BlobStore(engine.store)
    evidence = EvidenceStore(blobs)
    pool = ExecutorPool([Asking()])
    actions = ActionLibrary(tools, Orchestrator(engine, tools, pool, evidence), evidence)
    tools.register(make_tool(secret_tools.settings_seen, name="asks", effects="none"))
    graph = StateGraph("会话", engine=engine)
    try:
        result = actions.execute({"tool": "asks", "params": {"about": "x"}}, graph)
    finally:
        background.wait_for(pool.stop(), twin="stop")
    assert (result.status, result.error and result.error["code"]) == ("failed", "SecretMissing")
    assert graph.nodes(type="receipt")[0].data["status"] == "failed"
    assert evidence.get(result.evidence_cid)["executor"] == "local"
