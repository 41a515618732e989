"""Why a group receives nothing: the facts that a client can ask for, and the findings that follow from them.

The files ending in `_diagnosis` are pure: facts in, findings out. Those ending in `_facts` ask a cluster by an `Admin`.
`ottla groups` prints both, and the console shows them; neither is known here.
"""
