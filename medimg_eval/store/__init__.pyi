from .content import (
    ContentStore as ContentStore,
    Stored as Stored,
    observation_store as observation_store,
    reply_store as reply_store,
)
from .features import FeatureStore as FeatureStore, Item as Item
from .keys import (
    VERSION as VERSION,
    array_key as array_key,
    content_key as content_key,
    digest as digest,
    digest_of_each as digest_of_each,
    picture_key as picture_key,
    prompt_key as prompt_key,
    sentence_key as sentence_key,
    text_key as text_key,
)
