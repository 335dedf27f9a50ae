from tests.contract import check_reference_script_from_the_shell


def test_the_reference_script_runs():
    check_reference_script_from_the_shell("iql")
