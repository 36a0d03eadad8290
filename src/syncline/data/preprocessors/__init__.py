"""Preprocessors: scale, encode, fill, bin and combine columns by statistics of a dataset.

Files: `base` (base class and conversions), `categories` (counting and numbering categories);
`chain` (several in order); `imputer`, `scaler`, `normalizer`, `transformer`, `discretizer`,
`encoder`, `tokenizer`, `vectorizer`, `hasher`, `torch` and `concatenator` (one family each).
Custom preprocessors subclass `syncline.data.preprocessor.Preprocessor`.
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
