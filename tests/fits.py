"""Whether data is what its schema says."""

import json

from jsonschema import Draft202012Validator

from depthbench.schemas import schema_of


def fits(name: str, data: object) -> None:
    """Raises `jsonschema.ValidationError` where it is not."""
    Draft202012Validator(schema_of(name)).validate(json.loads(json.dumps(data)))
