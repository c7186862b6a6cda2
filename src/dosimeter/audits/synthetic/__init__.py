"""A synthetic data set: who was among the records that its generator learned from?"""

from dosimeter.audits.synthetic.run import audit_synthetic

__all__ = ["audit_synthetic"]
