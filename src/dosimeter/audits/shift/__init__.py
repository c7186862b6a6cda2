"""The guard: would members and non-members differ if there were no model at all?"""
