"""The manifests of etc/kubernetes against the schemas that kubernetes-validate has of Kubernetes' own kinds."""
import pathlib

from programs.venvs import needs, program, run

pytestmark = needs("kubernetes")

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "etc/kubernetes"
# Kinds of the gateway are not Kubernetes' own.
VALIDATE = """
import sys, kubernetes_validate, yaml
for name in sys.argv[1:]:
    for d in yaml.safe_load_all(open(name)):
        if not d["apiVersion"].split("/")[0].endswith(".networking.k8s.io") or d["apiVersion"].startswith("networking"):
            kubernetes_validate.validate(d, "1.37", strict=True)
            print(d["kind"])
"""


def test_the_kinds_of_kubernetes(tmp_path):
    files = sorted(str(f) for f in FOLDER.glob("*.yaml"))
    said = run([program("kubernetes"), "-c", VALIDATE, *files], tmp_path)
    assert sorted(said.split()) == ["ConfigMap", "Deployment", "PersistentVolumeClaim", "PodDisruptionBudget", "Service"]


def test_a_wrong_one_is_noticed(tmp_path):
    text = (FOLDER / "ingot.yaml").read_text()
    assert "replicas: 3" in text
    (tmp_path / "wrong.yaml").write_text(text.replace("replicas: 3", "replicaz: 3"))
    try:
        run([program("kubernetes"), "-c", VALIDATE, str(tmp_path / "wrong.yaml")], tmp_path)
    except AssertionError as e:
        assert "replicaz" in str(e)
    else:
        raise AssertionError("an unknown member was not noticed")
