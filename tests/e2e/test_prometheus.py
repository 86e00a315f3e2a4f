"""What is shipped for Prometheus, in a real one that scrapes a running daemon: the page passes promtool,
each alert fires when it must and only then, and each expression of the dashboard gives data."""
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

from conftest import Starter
from daemon import DEADLINE_S, until
from test_cli import ingot
from test_cli_chat import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "etc" / "prometheus" / "ingot.rules.yaml"
DASHBOARD = ROOT / "etc" / "grafana" / "ingot.json"

pytestmark = [pytest.mark.home("release"),
              pytest.mark.skipif(not (shutil.which("prometheus") and shutil.which("promtool")), reason="prometheus is not here")]


def promtool(*args, **options):
    p = subprocess.run(["promtool", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=DEADLINE_S, **options)
    return p.returncode, p.stdout


# ---- alerts ----------------------------------------------------------------------------

I = 'instance="a:1"'
M = I + ',model_name="m"'


def counter(name, labels, step):
    return ["ingot_%s{%s}" % (name, labels), "0+%sx60" % step]


def gauge(name, labels, value):
    return ["%s{%s}" % (name, labels), "%sx60" % value]


def histogram(name, labels, per_minute):
    """per_minute: observations a minute by upper bound, cumulative."""
    return [counter(name + "_bucket", '%s,le="%s"' % (labels, le), n) for le, n in per_minute.items()]


def failures(errors):
    return [counter("request_failure_total", M + ',reason="error"', errors),
            counter("request_success_total", M + ',finished_reason="stop"', 100)]


# One sample a minute.  Alert: the labels that its alert has, series with which it fires within an hour,
# and others with which it must not.
ALERTS = {
    "IngotDown": ({"job": "ingot"}, [gauge("up", 'job="ingot",' + I, "0+0")],
                  [gauge("up", 'job="ingot",' + I, "1+0"), gauge("up", 'job="other",' + I, "0+0")]),
    "IngotErrors": ({"model_name": "m"}, failures(20), failures(2)),
    "IngotModelLoadFailed": ({}, [counter("model_load_failures_total", I, 1)],
                             [counter("model_load_failures_total", I, 0)]),
    "IngotRequestsRefused": ({}, [counter("requests_refused_total", I, 3)],
                             [counter("requests_refused_total", I, 0)]),
    "IngotQueueLong": ({}, [gauge("ingot_num_requests_waiting", I, "4+0")],
                       [["ingot_num_requests_waiting{%s}" % I, " ".join(["5 0"] * 30)]]),
    "IngotFirstTokenSlow": (
        {"model_name": "m"},
        histogram("time_to_first_token_seconds", M, {"10": 90, "20": 100, "+Inf": 100}),
        histogram("time_to_first_token_seconds", M, {"5": 96, "10": 98, "+Inf": 100})),
    "IngotTokensSlow": (
        {}, histogram("inter_token_latency_seconds", I, {"0.3": 90, "0.5": 100, "+Inf": 100}),
        histogram("inter_token_latency_seconds", I, {"0.2": 96, "0.3": 98, "+Inf": 100})),
    "IngotCacheTooSmall": ({}, [counter("num_preemptions_total", I, 60)],
                           [counter("num_preemptions_total", I, 1)]),
    "IngotModelsThrash": ({}, [counter("model_unloads_total", I, 1)],
                          [["ingot_model_unloads_total{%s}" % I, "0x30 5x30"]]),
    "IngotLedgerFailing": ({}, [gauge("ingot_ledger_failing", I, "1+0")],
                           [gauge("ingot_ledger_failing", I, "0+0")]),
    "IngotLedgerRowsDropped": ({}, [counter("ledger_rows_dropped_total", I, 1)],
                               [counter("ledger_rows_dropped_total", I, 0)]),
}


def rules():
    group, = yaml.safe_load(RULES.read_text())["groups"]
    return {r["alert"]: r for r in group["rules"]}


def check_alert(tmp_path, name, series, expected):
    test = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [{
        "interval": "1m", "input_series": [{"series": s, "values": v} for s, v in series],
        "alert_rule_test": [{"eval_time": "59m", "alertname": name, "exp_alerts": expected}]}]}
    path = tmp_path / "test.yaml"
    path.write_text(json.dumps(test))
    return promtool("test", "rules", path)


def test_rules_are_valid():
    code, said = promtool("check", "rules", RULES)
    assert code == 0 and "%d rules found" % len(rules()) in said, said
    assert set(rules()) == set(ALERTS)
    for name, rule in rules().items():
        assert rule["labels"]["severity"] in ("critical", "warning") and rule["annotations"]["summary"], name


@pytest.mark.parametrize("name", ALERTS)
def test_alert(tmp_path, name):
    """It fires with one set of series and does not with the other; each is seen to matter."""
    labels, firing, quiet = ALERTS[name]
    rule = rules()[name]
    alert = {"exp_labels": {"instance": "a:1", **labels, **rule["labels"]},
             "exp_annotations": rule["annotations"]}
    for series, expected, other in ((firing, [alert], []), (quiet, [], [alert])):
        code, said = check_alert(tmp_path, name, series, expected)
        assert code == 0, said
        assert check_alert(tmp_path, name, series, other)[0] != 0


# ---- a Prometheus that scrapes a daemon ---------------------------------------------------


class Prometheus:
    def __init__(self, folder, target, token):
        self.port, self.token = free_port(), token
        (folder / "key").write_text(token)
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                  "rule_files": [str(RULES)],
                  "scrape_configs": [{"job_name": "ingot", "static_configs": [{"targets": [target]}],
                                      "authorization": {"credentials_file": str(folder / "key")}}]}
        path = folder / "prometheus.yml"
        path.write_text(json.dumps(config))
        code, said = promtool("check", "config", path)
        assert code == 0, said
        self.log = open(folder / "prometheus.log", "wb")
        self.process = subprocess.Popen(
            ["prometheus", "--config.file", str(path), "--storage.tsdb.path", str(folder / "tsdb"),
             "--web.listen-address", "127.0.0.1:%d" % self.port],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env=dict(os.environ, GOMAXPROCS="1"))

    def get(self, path, **query):
        url = "http://127.0.0.1:%d%s?%s" % (self.port, path, urllib.parse.urlencode(query))
        try:
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as r:
                return r.read()
        except urllib.error.HTTPError as e:
            if e.code == 503:  # not ready
                return None
            raise AssertionError("%s: %s" % (query, e.read().decode())) from e
        except (urllib.error.URLError, ConnectionError):
            return None  # it does not listen yet

    def query(self, expr):
        """The values of an expression; what is not a number left out."""
        answer = json.loads(self.get("/api/v1/query", query=expr))["data"]["result"]
        return [v for v in (float(r["value"][1]) for r in answer) if not math.isnan(v)]

    def close(self):
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self.log.close()


@pytest.fixture(scope="module")
def scraped(tmp_path_factory, models):
    """A daemon that was asked something between scrapes, and the Prometheus that scraped it with a
    monitor's key."""
    folder = tmp_path_factory.mktemp("prometheus")
    starter = Starter(folder)
    keys = str(folder / "keys")
    d = starter(models.script())
    token = ingot(d, "keys", "add", "p", "--monitor", "--file", keys)[1].strip()
    d.stop()
    d = starter(models.script(), {"server": {"keys_file": keys, "allow_anonymous": True}})
    p = Prometheus(folder, "127.0.0.1:%d" % d.port, token)
    try:
        until(lambda: p.get("/-/ready"), "Prometheus is ready")

        def ask():
            assert d.chat("word " * 40, zeppelin=1).status == 200
            assert d.chat(model="nix").status == 404

        def seen(n):
            return p.query('sum(ingot_request_success_total)') == [n]

        until(lambda: p.query("up") == [1], "a scrape")
        for n in (1, 2, 3):  # a rate needs two scrapes between which something happened
            ask()
            until(lambda: seen(n), "request %d" % n)
        yield d, p
    finally:
        p.close()
        starter.finish()


def test_the_page_is_valid(scraped):
    """promtool's lint: names, units, help.  The names are vLLM's where it has them, which are its own.  Its lint keeps
    colons for the names of rules, but the four that are vLLM's with its prefix have one; they are scraped all the same."""
    d, p = scraped
    page = d.http("GET", "/metrics", headers={"Authorization": "Bearer " + p.token}).body.decode()
    own = [line for line in page.split("\n") if not re.match(r"(# (HELP|TYPE) )?vllm:", line)]
    assert len(page.split("\n")) - len(own) == 12
    code, said = promtool("check", "metrics", input="\n".join(own))
    assert code == 0, said
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert len(p.query("vllm:%s == ingot_%s" % (name, name))) == 1


def test_a_monitors_key_is_enough(scraped):
    _, p = scraped
    target, = json.loads(p.get("/api/v1/targets"))["data"]["activeTargets"]
    assert target["health"] == "up" and not target["lastError"]


def test_rules_are_loaded(scraped):
    """All of them are evaluated without an error, and none fires on a daemon that is well."""
    _, p = scraped

    def evaluated():
        group, = json.loads(p.get("/api/v1/rules"))["data"]["groups"]
        return group["rules"] if all(r["health"] == "ok" for r in group["rules"]) else None

    found = until(evaluated, "the rules are evaluated")
    assert {r["name"] for r in found} == set(ALERTS)
    assert [r["name"] for r in found if r["state"] == "firing"] == []


def expressions(node):
    if isinstance(node, dict):
        if "expr" in node:
            yield node["expr"]
        for value in node.values():
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def test_the_dashboard_has_data(scraped):
    d, p = scraped
    dashboard = json.loads(DASHBOARD.read_text())
    found = list(expressions(dashboard))
    assert len(found) > 40 and len(set(found)) == len(found)
    for expr in found:
        assert '$instance' in expr, expr
        real = expr.replace("$instance", "127.*").replace("$__rate_interval", "10m")
        assert "$" not in real, expr
        assert p.query(real), expr
    variable = dashboard["templating"]["list"][1]["query"]["query"]
    assert variable == "label_values(ingot_build_info, instance)"
    assert p.query("ingot_build_info") == [1]


def test_the_dashboard_is_well_formed():
    """Ids once, panels side by side on 24 columns, every metric of the page named in docs/metrics.md."""
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["uid"] == "ingot" and dashboard["schemaVersion"] >= 36
    taken, ids = set(), [x["id"] for x in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert panel["title"] and at["x"] >= 0 and at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        refs = [t["refId"] for t in panel.get("targets", [])]
        assert len(set(refs)) == len(refs)
        for target in [panel, *panel.get("targets", [])]:
            assert panel["type"] == "row" or target["datasource"]["uid"] == "${datasource}"
