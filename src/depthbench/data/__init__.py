"""Text to token shards: corpora, tokenizers, splits, sampling, losses."""
