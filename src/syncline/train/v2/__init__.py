"""Where programs written for Ray import some trainers from; they live in `syncline.train`
itself.
"""
