from tests.contract import check_reference_script


def test_the_reference_script_runs(capsys, monkeypatch):
    check_reference_script("sac_n", capsys, monkeypatch)
