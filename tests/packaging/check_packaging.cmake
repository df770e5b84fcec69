# cmake -DROOT=<repository> -DVERSION=<version> -DPYTHON=<python3 or empty> -P check_packaging.cmake
# The packages are well-formed, have the project's version, and set only options that exist.

cmake_minimum_required(VERSION 3.25)
file(READ "${ROOT}/packaging/vcpkg/zero/vcpkg.json" manifest)
string(JSON found GET "${manifest}" version) # fails if the file is not JSON
if(NOT found STREQUAL VERSION)
    message(FATAL_ERROR "packaging/vcpkg/zero/vcpkg.json says version ${found}, the project ${VERSION}")
endif()
file(STRINGS "${ROOT}/packaging/spack/packages/zero/package.py" found REGEX "^    version\\(\"${VERSION}\"")
if(NOT found)
    message(FATAL_ERROR "packaging/spack/packages/zero/package.py lacks version ${VERSION}")
endif()
if(PYTHON)
    foreach(recipe IN ITEMS conan/conanfile.py conan/test_package/conanfile.py spack/packages/zero/package.py)
        execute_process(COMMAND "${PYTHON}" -c "import ast, sys; ast.parse(open(sys.argv[1]).read())" "${ROOT}/packaging/${recipe}" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
endif()
# Options that a package sets must exist. Without its variant "compiled" a package installs headers only.
file(READ "${ROOT}/CMakeLists.txt" project)
foreach(recipe IN ITEMS vcpkg/zero/portfile.cmake spack/packages/zero/package.py conan/conanfile.py)
    file(READ "${ROOT}/packaging/${recipe}" text)
    string(REGEX MATCHALL "ZERO_[A-Z_]+" options "${text}")
    if(NOT "ZERO_HEADERS_ONLY" IN_LIST options)
        message(FATAL_ERROR "packaging/${recipe} does not set ZERO_HEADERS_ONLY")
    endif()
    list(REMOVE_ITEM options ZERO_COMPILED) # the macro
    foreach(option IN LISTS options)
        if(NOT project MATCHES "(option|set)\\(${option} ")
            message(FATAL_ERROR "packaging/${recipe} sets ${option}, which is not an option of the project")
        endif()
    endforeach()
endforeach()
