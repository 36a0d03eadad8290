"""Preprocessors: columns scaled, encoded, filled, cut and put together by what was learned from a
dataset.

Files: `base` (what they share), `counting` and `categories` (learning and looking up categories);
`chain` (several in a row); `scaler`, `encoder`, `discretizer`, `imputer`, `normalizer`,
`transformer`, `hasher`, `tokenizer`, `vectorizer`, `concatenator`, `torch` (one family each). The
base class of your own is `syncline.data.preprocessor.Preprocessor`.
"""

from syncline.data.preprocessors.chain import Chain
from syncline.data.preprocessors.concatenator import Concatenator
from syncline.data.preprocessors.discretizer import CustomKBinsDiscretizer, UniformKBinsDiscretizer
from syncline.data.preprocessors.encoder import (
    Categorizer,
    LabelEncoder,
    MultiHotEncoder,
    OneHotEncoder,
    OrdinalEncoder,
)
from syncline.data.preprocessors.hasher import FeatureHasher
from syncline.data.preprocessors.imputer import SimpleImputer
from syncline.data.preprocessors.normalizer import Normalizer
from syncline.data.preprocessors.scaler import (
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from syncline.data.preprocessors.tokenizer import Tokenizer
from syncline.data.preprocessors.torch import TorchVisionPreprocessor
from syncline.data.preprocessors.transformer import PowerTransformer
from syncline.data.preprocessors.vectorizer import CountVectorizer, HashingVectorizer

__all__ = [
    "Categorizer",
    "Chain",
    "Concatenator",
    "CountVectorizer",
    "CustomKBinsDiscretizer",
    "FeatureHasher",
    "HashingVectorizer",
    "LabelEncoder",
    "MaxAbsScaler",
    "MinMaxScaler",
    "MultiHotEncoder",
    "Normalizer",
    "OneHotEncoder",
    "OrdinalEncoder",
    "PowerTransformer",
    "RobustScaler",
    "SimpleImputer",
    "StandardScaler",
    "Tokenizer",
    "TorchVisionPreprocessor",
    "UniformKBinsDiscretizer",
]
