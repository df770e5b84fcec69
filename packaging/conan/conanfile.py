# conan create packaging/conan -s compiler.cppstd=20                            header-only: zero::zero
# conan create packaging/conan -s compiler.cppstd=20 -o "zero/*:compiled=True"   with zero::compiled

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, cmake_layout
from conan.tools.files import copy, load, rmdir


class Zero(ConanFile):
    name = "zero"
    description = "Composable ZeRO (Zero Redundancy Optimizer) building blocks"
    license = "MIT"
    topics = ("deep learning", "distributed training", "header-only")
    settings = "os", "arch", "compiler", "build_type"
    options = {"compiled": [True, False]}
    default_options = {"compiled": False}
    generators = ("CMakeToolchain",)

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._root, "include", "zero", "core", "version.hpp"))
        self.version = ".".join(re.search(rf"version_{part} = (\d+);", text).group(1) for part in ("major", "minor", "patch"))

    def export_sources(self):
        for pattern in ("include/*", "src/*", "cmake/*", "CMakeLists.txt", "LICENSE"):
            copy(self, pattern, self._root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        if not self.info.options.compiled:
            self.info.clear()  # headers serve every platform

    def build(self):
        options = {"ZERO_HEADERS_ONLY": "ON"}
        if self.options.compiled:
            options = dict.fromkeys(("ZERO_BUILD_TESTS", "ZERO_BUILD_BENCHMARKS", "ZERO_BUILD_EXAMPLES", "ZERO_BUILD_C", "ZERO_BUILD_PLAN", "ZERO_CUDA", "ZERO_CHECKPOINT"), "OFF")
        cmake = CMake(self)
        cmake.configure(variables=options)
        cmake.build()

    def package(self):
        CMake(self).install()
        rmdir(self, os.path.join(self.package_folder, "share"))  # Conan writes the packages of CMake and pkg-config
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "zero")
        headers = self.cpp_info.components["headers"]
        headers.set_property("cmake_target_name", "zero::zero")
        headers.set_property("pkg_config_name", "zero")
        headers.bindirs = []
        headers.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            headers.system_libs = ["pthread"]
        if self.options.compiled:
            compiled = self.cpp_info.components["compiled"]
            compiled.set_property("cmake_target_name", "zero::compiled")
            compiled.set_property("pkg_config_name", "zero-compiled")
            compiled.requires = ["headers"]
            compiled.libs = ["zero"]
            compiled.defines = ["ZERO_COMPILED"]
