"""What a program lacks, in words: CUDA libraries and others, recognised by the missing header or symbol."""

from __future__ import annotations

import re

# (what it is, headers, symbols)
_LIBRARIES = (
    ("cuBLAS", r"cublas", r"cublas"),
    ("cuFFT", r"cufft", r"cufft"),
    ("cuRAND's host library", r"(?!)", r"curand"),
    ("cuRAND", r"curand", r"(?!)"),
    ("cuSPARSE", r"cusparse", r"cusparse"),
    ("cuSOLVER", r"cusolver", r"cusolver"),
    ("cuDNN", r"cudnn", r"cudnn"),
    ("NPP", r"npp", r"npp[is]"),
    ("NVRTC", r"nvrtc", r"nvrtc"),
    ("nvJPEG", r"nvjpeg", r"nvjpeg"),
    ("NCCL", r"nccl", r"nccl"),
    ("NVML", r"nvml", r"nvml[A-Z]"),
    ("NVTX", r"nvToolsExt|nvtx", r"nvtx"),
    ("NVSHMEM", r"nvshmem", r"nvshmem"),
    ("CUTLASS", r"cutlass|cute/", r"(?!)"),
    ("MPI", r"mpi\.h", r"MPI_"),
    ("OpenGL", r"GL/|GLFW|glut|glew|helper_gl", r"gl[A-Z]\w+|glut|glew"),
    ("EGL", r"EGL/", r"egl[A-Z]|cuEGL"),
    ("Vulkan", r"vulkan", r"vk[A-Z]"),
    ("OpenCV", r"opencv", r"cv::"),
    ("Boost", r"boost/", r"boost::"),
    ("PyTorch", r"torch/|ATen/|c10/", r"at::|torch::"),
    ("GSL", r"gsl/", r"gsl_"),
    ("libpng or libjpeg", r"png\.h|jpeglib", r"png_|jpeg_"),
    ("cudadevrt (kernels that launch kernels)", r"(?!)", r"cudaGetParameterBuffer|cudaLaunchDevice|cudaCDP|__cudaCDP"),
)
_NO_HEADER = re.compile(r"fatal error: ([\w./+-]+): No such file|cannot open source file \"([^\"]+)\"")
_NO_SYMBOL = re.compile(r"undefined reference to [`'\"]([^'\"`]+)|Undefined reference to '([^']+)'|[Uu]nresolved extern function '([^']+)'")
_NO_LIBRARY = re.compile(r"cannot find -l([\w+.-]+)|cannot find -l:([\w+.-]+)")


def find_missing_header(errors: str) -> str:
    """Return the name of the first header that was not found, as it was included; "" if that is not what is wrong."""
    found = _NO_HEADER.search(errors)
    return (found[1] or found[2]) if found else ""


def find_missing_library(errors: str) -> str:
    """Return the name of the first library that the linker did not find, as in ``-lname``; "" if that is not what is wrong."""
    found = _NO_LIBRARY.search(errors)
    return (found[1] or found[2]) if found else ""


def lacks_symbols(errors: str) -> bool:
    """Tell whether the link failed for want of definitions."""
    return bool(_NO_SYMBOL.search(errors))


def explain(errors: str) -> str:
    """Return the errors with a first line that names the library a program wants, where that can be told; else as they are."""
    header = find_missing_header(errors)
    symbol = next((next(filter(None, groups)) for groups in _NO_SYMBOL.findall(errors)), "")
    library = find_missing_library(errors)
    for what, headers, symbols in _LIBRARIES:
        if header and re.match(headers, header):
            return f"needs {what}: {header} is not there\n{errors}"
        if not header and symbol and re.match(symbols, symbol):
            return f"needs {what}: {symbol} is not there\n{errors}"
        if library and re.match(headers, library):
            return f"needs {what}: lib{library} is not there\n{errors}"
    if header:
        return f"needs a header that is not there: {header}\n{errors}"
    return f"needs a library that is not there: {library}\n{errors}" if library else errors
