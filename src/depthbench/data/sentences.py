"""Where sentences end, by the text of one token."""

STOPS = (".", "!", "?", "。", "！", "？")
"""What ends a sentence."""
CLOSING = "\"'”’»›」』)]}）】》〉"
"""Quotes and brackets that may stand behind the end of a sentence, in the same token."""


def ends_sentence(text: str) -> bool:
    """Whether the text of a token ends with a stop, closing quotes, brackets and space aside.

    One token is all that is seen: the stop of an abbreviation or a number counts, and a quote
    that is a token of its own behind the stop opens the next sentence.
    """
    while text and (text[-1].isspace() or text[-1] in CLOSING):
        text = text[:-1]
    return text.endswith(STOPS)
