"""`ray.autoscaler.sdk`: requests to a cluster that adds nodes on demand.

`syncline up` and `syncline down` start and stop clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncline.core import option_checks as check
from syncline.core.lifecycle import ensure_engine
from syncline.suggestions import check_resource_names


def request_resources(
    num_cpus: int | None = None,
    bundles: Sequence[Mapping[str, float]] | None = None,
    bundle_label_selectors: Sequence[Mapping[str, str]] | None = None,
) -> None:
    """Ask the cluster to grow until it has these resources, and not to shrink below them.

    The request replaces the last one; without arguments it is withdrawn. One machine, and a
    cluster without an autoscaler, stay as they are.

    Args:
        num_cpus: CPUs in total.
        bundles: Resources that each must fit on one node, such as ``[{"GPU": 1}] * 4``.
        bundle_label_selectors: Labels that the node of each bundle must have.

    Raises:
        TypeError, ValueError: The amounts are no amounts.
    """
    if isinstance(bundles, Mapping) or not isinstance(bundles or (), Sequence):
        raise TypeError(
            f"`bundles` must be a list of dicts such as [{{'CPU': 1}}], not {bundles!r}"
        )
    check.amount("num_cpus", num_cpus)
    for bundle in bundles or ():
        check_resource_names("bundles", bundle)
        for name, share in bundle.items():
            check.amount(f"bundles[{name!r}]", share)
    if bundle_label_selectors is not None:
        check.bundle_labels("bundle_label_selectors", bundle_label_selectors, len(bundles or ()))
    ensure_engine().request_resources(
        num_cpus=num_cpus,
        bundles=[dict(bundle) for bundle in bundles or ()],
        label_selectors=[dict(each) for each in bundle_label_selectors or ()],
    )
