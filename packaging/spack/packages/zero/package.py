# spack repo add <zero>/packaging/spack, then: spack dev-build --source-path <zero> zero@0.2.0
# There is no released archive yet, so the version has no checksum.

from spack.package import *


class Zero(CMakePackage):
    """Composable ZeRO (Zero Redundancy Optimizer) building blocks, header-only C++20."""

    license("MIT")

    version("0.2.0")

    variant("tests", default=False, description="Build the tests")
    variant("compiled", default=False, description="Build zero::compiled as well")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("catch2", type="build", when="+tests")

    conflicts("%gcc@:11", msg="zero needs C++20 as of g++ 12")
    conflicts("%clang@:13", msg="zero needs C++20 as of clang 14")

    def cmake_args(self):
        if self.spec.satisfies("~compiled~tests"):
            return [self.define("ZERO_HEADERS_ONLY", True)]
        return [
            self.define_from_variant("ZERO_BUILD_TESTS", "tests"),
            self.define_from_variant("ZERO_BUILD_COMPILED", "compiled"),
            self.define("ZERO_BUILD_C", False),
            self.define("ZERO_BUILD_PLAN", False),
            self.define("ZERO_BUILD_BENCHMARKS", False),
            self.define("ZERO_BUILD_EXAMPLES", False),
            self.define("ZERO_CUDA", "OFF"),
            self.define("ZERO_CHECKPOINT", "OFF"),
        ]
