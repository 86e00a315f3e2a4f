"""What Ingot does not know of a request is left out, and everybody is told: the client, the log,
the ledger and the metrics; or, by server.unknown_parameters, it is refused."""
import re
import signal

from daemon import merged, until
from test_http import CHAT, body
from test_ledger import until_rows
from tiny_model import SCRIPT

PARTS = [{"role": "user", "content": [{"type": "text", "text": "hi"},
                                      {"type": "image_url", "image_url": {"url": "data:,x"}}]}]
NAMES = "zeppelin, messages[0].content[1].type=image_url, store"


def ask(d, **options):
    return d.http("POST", CHAT, body(zeppelin={"a": 1}, messages=PARTS, store=True, **options))


def test_everybody_is_told(start, models):
    d = start(models.script())
    assert "x-ingot-ignored" not in {k.lower() for k in d.chat().headers}
    for stream in (False, True, False):
        r = ask(d, stream=stream)
        assert r.status == 200 and SCRIPT[:20] in r.body.decode() if not stream else r.status == 200
        assert sorted(r.headers["x-ingot-ignored"].split(", ")) == sorted(NAMES.split(", "))
    r = ask(d, model="nobody")  # an error, too
    assert r.status == 404 and "zeppelin" in r.headers["x-ingot-ignored"]
    # one line for each client and name
    said = re.findall(r"client 127\.0\.0\.1.*?: (\S+) is not known here", d.log)
    assert sorted(said) == sorted(NAMES.split(", ")), d.log
    got = until_rows(d, 5)
    assert got[0]["ignored"] == "" and all(sorted(row["ignored"].split(", ")) == sorted(NAMES.split(", "))
                                           for row in got[1:])
    metrics = d.metrics()
    for name in ("zeppelin", "messages[].content[].type=image_url", "store"):
        assert metrics.sum("ingot_ignored_parameters_total", parameter=name) == 4, name


def test_a_left_out_part_is_not_in_the_prompt(scripted):
    with_image = ask(scripted).json["usage"]["prompt_tokens"]
    assert with_image == scripted.chat("hi").json["usage"]["prompt_tokens"]


def test_messages_of_which_nothing_is_left(scripted):
    """An Anthropic request of which no message is known is an error."""
    image = {"type": "image", "source": {"type": "url", "url": "http://localhost/x"}}
    for stream in (False, True):
        r = scripted.http("POST", "/v1/messages", {"model": "tiny", "max_tokens": 9, "stream": stream,
                                                   "messages": [{"role": "user", "content": [image]}]})
        assert r.status == 400 and r.error["type"] == "invalid_request_error", r
        assert r.headers["x-ingot-ignored"] == "messages[0].content[0].type=image"


def test_on_a_websocket(scripted):
    c = scripted.ws()
    c.create("hi", zeppelin=1, tools=[{"type": "web_search"}])
    events = c.until_type("response.completed")
    assert events[0]["headers"] == {"x-ingot-ignored": "zeppelin, tools[0].type=web_search"}
    assert not any("headers" in e for e in events[1:])
    c.create("hi")
    assert "headers" not in c.until_type("response.completed")[0]


def test_refuse(start, models):
    d = start(models.script(), extra={"server": {"unknown_parameters": "refuse"}})
    r = ask(d)
    assert r.status == 400 and r.error["code"] == "unsupported_parameter"
    assert r.error["param"] in NAMES.replace("=image_url", "").split(", ")
    r = d.http("POST", CHAT, body(service_tier="flex"))
    assert r.status == 400 and r.error["param"] == "service_tier"
    # a reload changes it
    d.write_config(merged(d.config, {"server": {"unknown_parameters": "note"}}))
    d.process.send_signal(signal.SIGHUP)
    until(lambda: ask(d).status == 200, "a reload")


def test_many_names_make_few_series(start, models):
    d = start(models.script())
    for i in range(12):
        r = d.http("POST", CHAT, body(**{"name_%d_%d" % (i, k): 1 for k in range(10)}, max_tokens=1))
        assert r.status == 200
    text = d.http("GET", "/metrics").body.decode()
    series = re.findall(r'ingot_ignored_parameters_total\{parameter="(.*)"\} (\d+)', text)
    assert len(series) == 65 and sum(int(n) for _, n in series) == 120
    assert dict(series)[""] == "56"


def test_administration_knows_no_unknown(scripted):
    r = scripted.http("POST", "/v1/ingot/models/load", b'{"model": "tiny", "zeppelin": 1}')
    assert r.status == 400 and r.error["param"] == "zeppelin"
