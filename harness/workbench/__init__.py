"""The workbench from Python and from notebooks: the verbs as functions that return pandas data frames, and loose kernels.

``aicf.workbench`` is this package's public name; ``docs/workbench.md`` shows it at work.
"""

from harness.discover import LoadedOp as LoadedOp
from harness.errors import BuildError as BuildError
from harness.errors import RecordError as RecordError
from harness.errors import SpecError as SpecError
from harness.errors import UseError as UseError
from harness.loose.arguments import In as In
from harness.loose.arguments import InOut as InOut
from harness.loose.arguments import Out as Out
from harness.loose.arguments import Size as Size
from harness.loose.arguments import Value as Value
from harness.loose.formulas import ceil_div as ceil_div
from harness.spec import Booleans as Booleans
from harness.spec import Indices as Indices
from harness.spec import Positive as Positive
from harness.spec import Probabilities as Probabilities
from harness.spec import Uniform as Uniform
from harness.workbench.op import Op as Op
from harness.workbench.op import doctor as doctor
from harness.workbench.op import list_ops as list  # noqa: A004, F401 - the verb's name
from harness.workbench.op import new as new
from harness.workbench.tuning import Tuned as Tuned
from harness.workbench.tuning import tune as tune
