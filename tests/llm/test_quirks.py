import pytest

from meshai.llm.quirks import Quirks, Refusal

CONTEXT = [
    ({"message": "This model's maximum context length is 4097 tokens. However, you requested 4200 tokens"}, 4097),
    ({"message": "'max_tokens' is too large: 900. This model's maximum context length is 2048 tokens"}, 2048),
    ({"message": "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"}, 4096),
    ({"message": "the request exceeds the available context size", "n_ctx": 8192}, 8192),
    ({"message": "However, the model is loaded with context length of only 4096 tokens, which is not enough"}, 4096),
    ({"message": "prompt is too long: 210000 tokens > 200000 maximum"}, 200000),
    ({"message": "too large for model with 32768 maximum context length"}, 32768),
    ({"message": "no", "code": "context_length_exceeded"}, None),
    ("the input length exceeds the context length", None),
]


@pytest.mark.parametrize(("error", "tokens"), CONTEXT)
def test_context_errors_of_many_servers(error, tokens):
    refusal = Refusal.parse(400, {"error": error})
    assert refusal.about_context
    assert refusal.context_tokens == tokens


@pytest.mark.parametrize("message", ["invalid role in context", "temperature out of range", ""])
def test_other_errors_are_not_about_context(message):
    assert not Refusal.parse(400, {"error": {"message": message}}).about_context


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('model "llama3.2" not found, try pulling it first', True),
        ("The model `x` does not exist.", True),
        ("Invalid model identifier", True),
        ("404 page not found", False),
        ("Not Found", False),
    ],
)
def test_missing_model_is_told_from_missing_path(message, expected):
    assert Refusal.parse(404, {"error": {"message": message}}).about_model is expected


@pytest.mark.parametrize("body", [None, "", [], 3, {"error": None}, {"error": []}, {"detail": "x"}, b"\xff"])
def test_any_body_is_a_refusal(body):
    assert Refusal.parse(500, body).status == 500


def test_context_error_teaches_no_parameter():
    refusal = Refusal(400, "max_tokens too large, maximum context length is 2048 tokens")
    assert Quirks().learn(refusal, {"max_tokens": 9}) == ""


def test_parameter_refused_under_both_names_is_dropped():
    quirks = Quirks()
    quirks.learn(Refusal(400, "max_tokens is not supported"), quirks.apply({"max_tokens": 9}))
    quirks.learn(Refusal(400, "max_completion_tokens: unknown field"), quirks.apply({"max_tokens": 9}))
    assert quirks.apply({"max_tokens": 9, "model": "m"}) == {"model": "m"}


def test_param_field_names_the_parameter():
    quirks = Quirks()
    assert quirks.learn(Refusal(400, "unsupported value", param="temperature"), {"temperature": 1, "max_tokens": 2})
    assert quirks.describe() == ["no temperature"]
