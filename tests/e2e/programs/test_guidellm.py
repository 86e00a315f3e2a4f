"""GuideLLM, unmodified, as load: eight streams at once, over chat completions and completions; its report has every
request, none failed, and counts the tokens as the daemon's ledger does."""
import json

import pytest

from daemon import until
from programs.venvs import left_out, needs, program, run, url
from test_ledger import rows

pytestmark = needs("guidellm")

N_REQUESTS, N_TOKENS, N_AT_ONCE = 64, 48, 8


def finished(d):
    """The rows of the load, if all are there; before it each of GuideLLM's processes asks for one token."""
    found = [r for r in rows(d) if r["output_tokens"] > 1]
    return found if len(found) >= N_REQUESTS else None


@pytest.mark.parametrize("route, endpoint", [("chat_completions", "POST /v1/chat/completions"),
                                             ("text_completions", "POST /v1/completions")])
def test_a_load(start, models, tmp_path, route, endpoint):
    d = start(models.random())
    (tmp_path / "prompts.jsonl").write_text("".join(
        json.dumps({"prompt": "Tell me story number %d." % i, "output_tokens_count": N_TOKENS}) + "\n"
        for i in range(2 * N_REQUESTS)))
    run([program("guidellm", "guidellm"), "benchmark", "run", "--target", url(d), "--model", "tiny",
         "--data", "prompts.jsonl", "--rate-type", "concurrent", "--rate", str(N_AT_ONCE),
         "--max-requests", str(N_REQUESTS), "--disable-progress", "--output-path", "report.json"], tmp_path,
        GUIDELLM__PREFERRED_ROUTE=route)
    benchmark, = json.loads((tmp_path / "report.json").read_text())["benchmarks"]
    assert benchmark["run_stats"]["requests_made"] == {
        "successful": N_REQUESTS, "errored": 0, "incomplete": 0, "total": N_REQUESTS}
    found = {name: values["successful"] for name, values in benchmark["metrics"].items()}
    assert 1 < found["request_concurrency"]["max"] <= N_AT_ONCE
    assert found["requests_per_second"]["mean"] > 0 and found["output_tokens_per_second"]["mean"] > 0
    assert found["time_to_first_token_ms"]["min"] > 0
    load = until(lambda: finished(d), "the rows of all requests")
    assert {(r["endpoint"], r["status"], r["finish"]) for r in load} == {(endpoint, 200, "length")}
    for name, column in (("prompt_token_count", "prompt_tokens"), ("output_token_count", "output_tokens")):
        assert found[name]["total_sum"] == sum(r[column] for r in load), name
    assert found["output_token_count"]["total_sum"] == N_REQUESTS * N_TOKENS
    assert left_out(d) == set()
