"""The compiled kernel. Without a C compiler the installation goes on, and Python does its work."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "posthouse.records._columns",
            ["src/posthouse/records/_columns.c"],
            extra_compile_args=["-O3"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
