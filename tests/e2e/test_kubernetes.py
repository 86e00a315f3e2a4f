"""The manifests of etc/kubernetes without a cluster: they agree with each other and with the daemon, which starts with their
configuration and has the series that the gateway's endpoint picker reads."""
import pathlib
import re
import subprocess

import pytest
import yaml

from access import add_key, bearer
from daemon import BUILD, clean_env, merged
from test_adapters import adapter, entry

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "etc/kubernetes"
pytestmark = pytest.mark.release


def documents():
    return [d for f in sorted(FOLDER.glob("*.yaml")) for d in yaml.safe_load_all(f.read_text())]


def the(kind):
    found, = [d for d in documents() if d["kind"] == kind]
    return found


def test_they_agree():
    assert {d["kind"]: d["apiVersion"] for d in documents()} == {
        "ConfigMap": "v1", "PersistentVolumeClaim": "v1", "Deployment": "apps/v1", "Service": "v1",
        "PodDisruptionBudget": "policy/v1", "InferencePool": "inference.networking.k8s.io/v1",
        "HTTPRoute": "gateway.networking.k8s.io/v1"}
    pods, pool, service = the("Deployment")["spec"]["template"], the("InferencePool")["spec"], the("Service")["spec"]
    labels, container = pods["metadata"]["labels"], pods["spec"]["containers"][0]
    for selector in (the("Deployment")["spec"]["selector"]["matchLabels"], service["selector"],
                     pool["selector"]["matchLabels"], the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    port, = container["ports"]
    assert port["containerPort"] == 6468 and pool["targetPorts"] == [{"number": 6468}]
    assert service["ports"][0]["targetPort"] == port["name"]
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    volumes = {v["name"]: v for v in pods["spec"]["volumes"]}
    assert set(volumes) == {m["name"] for m in container["volumeMounts"]}
    assert volumes["config"]["configMap"]["name"] == the("ConfigMap")["metadata"]["name"]
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == the("PersistentVolumeClaim")["metadata"]["name"]
    assert pods["spec"]["securityContext"]["runAsUser"] == int(
        re.search(r"--uid (\d+)", (ROOT / "Containerfile").read_text())[1])


def test_the_gateways_kinds():
    """The members that the definitions of InferencePool (v1) and HTTPRoute (v1) require, and no others."""
    pool, route = the("InferencePool")["spec"], the("HTTPRoute")["spec"]
    assert set(pool) == {"selector", "targetPorts", "endpointPickerRef"} and set(pool["selector"]) == {"matchLabels"}
    picker = pool["endpointPickerRef"]
    assert set(picker) == {"name", "port", "failureMode"} and set(picker["port"]) == {"number"}
    assert picker["failureMode"] in ("FailOpen", "FailClose")
    assert set(route) == {"parentRefs", "hostnames", "rules"}
    rule, = route["rules"]
    assert set(rule) == {"matches", "backendRefs", "timeouts"} and set(rule["timeouts"]) == {"request"}
    for match in rule["matches"]:
        assert set(match) == {"path"} and match["path"]["type"] == "PathPrefix"
        # a prefix covers what is below it
        assert not any(p.startswith(match["path"]["value"]) for p in ("/metrics", "/v1/ingot/status"))
    assert rule["backendRefs"] == [{"group": "inference.networking.k8s.io", "kind": "InferencePool",
                                    "name": the("InferencePool")["metadata"]["name"]}]


def test_a_daemon_takes_the_configuration(start, models, tmp_path):
    """As in a pod, but for paths: with keys from a program, an open /metrics, and probes that name the address."""
    data = the("ConfigMap")["data"]
    config = yaml.safe_load(data["ingot.yaml"])
    env, = the("Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env["name"] == "INGOT_SERVER_HOST"
    (tmp_path / "ingot.yaml").write_text(data["ingot.yaml"])
    p = subprocess.run([BUILD / "daemon" / "ingotd", "--check-config", "--config", tmp_path / "ingot.yaml"],
                       env=clean_env(tmp_path), capture_output=True, text=True)
    assert "unknown key" not in p.stderr and "ingot.yaml:" not in p.stderr, p.stderr
    key = add_key(tmp_path / "keys")
    command = tmp_path / "keys-command"
    assert "/etc/ingot-keys/keys" in data["keys-command"]
    command.write_text(data["keys-command"].replace("/etc/ingot-keys", str(tmp_path)))
    command.chmod(0o555)
    server = dict(config["server"], keys_command=str(command), port=0)
    del server["drain_timeout"]
    model = entry(models, ("one", adapter(tmp_path / "one")), ("two", adapter(tmp_path / "two", seed=2)))
    d = start(extra={"server": server, "models": [model]}, env={env["name"]: "127.0.0.2"})
    assert d.host == "127.0.0.2"
    for path in ("/healthz", "/metrics"):
        assert d.http("GET", path).status == 200
    assert d.http("GET", "/v1/models").status == 401
    for host in config["server"]["allowed_hosts"]:
        assert d.http("GET", "/v1/models", headers={**bearer(key), "Host": host}).status == 200
    assert d.http("GET", "/v1/models", headers={**bearer(key), "Host": "other.example"}).status == 403
    check_series(d.metrics())


def check_series(page):
    """What the picker's protocol for model servers names: types, labels, values."""
    for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc", "cache_config_info",
                 "lora_requests_info"):
        assert page.types["vllm:" + name] == "gauge"
        assert len([s for s in page.samples if s[0] == "vllm:" + name]) == 1, "the picker does not add series"
    labels, = [l for n, l, v in page.samples if n == "vllm:cache_config_info"]
    assert labels["block_size"] == "16"
    # two layers, two heads of 32 for keys and for values, of two bytes each
    assert int(labels["num_gpu_blocks"]) == page.sum("ingot_kv_cache_arena_bytes") // (16 * 2 * 2 * 2 * 32 * 2)
    (labels, at), = [(l, v) for n, l, v in page.samples if n == "vllm:lora_requests_info"]
    assert labels == {"max_lora": "2", "running_lora_adapters": "tiny:one,tiny:two", "waiting_lora_adapters": ""}
    assert at > 1.7e9


def test_metrics_are_closed_by_default(start, models, tmp_path):
    add_key(tmp_path / "keys")
    d = start(models.script(), {"server": {"keys_file": str(tmp_path / "keys")}})
    assert d.http("GET", "/metrics").status == 401


def test_what_is_not_loaded(start, models):
    """Without a loaded model there is no block, and without adapters nothing of them."""
    d = start(extra={"models": [{"name": "tiny", "path": models.script(), "load": "first_use"}]})
    names = {n for n, _, _ in d.metrics().samples}
    assert not names & {"vllm:cache_config_info", "vllm:lora_requests_info"}
    assert d.chat(max_tokens=1).status == 200
    names = {n for n, _, _ in d.metrics().samples}
    assert "vllm:cache_config_info" in names and "vllm:lora_requests_info" not in names
