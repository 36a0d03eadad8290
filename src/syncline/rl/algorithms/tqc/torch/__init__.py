"""The critics and the losses of TQC.

Files: `tqc_torch_learner` (with the module).
"""
