import pytest

from depthbench.data.config import DataConfig
from depthbench.errors import DepthbenchError


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"domains": ["cod"]}, r"unknown domain 'cod', did you mean 'code'\? Allowed: code, math"),
        ({"domains": []}, "at least one domain of code, math, prose"),
        ({"domains": ["code", "code"]}, "named twice"),
        ({"paths": ["a.txt"], "domains": ["code"]}, "remove one of the two"),
        ({"vocab": 257, "tokenizer": "bpe"}, "vocab = 257: .*greater than or equal to 258"),
        ({"validation_fraction": 0.0}, "validation_fraction = 0.0"),
        ({"validation_fraction": 0.6}, "validation_fraction = 0.6"),
        ({"megabytes": 0}, "megabytes = 0"),
        ({"path": ["a"]}, "unknown key 'path', did you mean 'paths'"),
        ({"paths": "a.txt"}, "paths = 'a.txt'"),
    ],
)
def test_bad_settings(data: dict[str, object], message: str) -> None:
    with pytest.raises(DepthbenchError, match=message) as caught:
        DataConfig.parse(data)
    assert "\n" not in str(caught.value)


def test_paths_with_the_default_domains_are_fine() -> None:
    config = DataConfig.parse({"paths": ["a.txt"]})
    assert config.paths == ("a.txt",)
    assert config.domains == ("code", "math", "prose")
