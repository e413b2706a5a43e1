"""A tiny anchor-free detector with dynamic batch, height and width: writes dynamic_opset11.onnx and dynamic_opset17.onnx.

The grid is made inside the graph, as dynamic exports do. Random weights.
Use: dynamic_head.py FOLDER; needs torch and onnx.
"""
import sys
import onnx
import torch
from torch import nn

torch.manual_seed(0)
class Detect(nn.Module):
    def __init__(s, nc=3, ch=(8,8,8), reg=4):
        super().__init__(); s.nc, s.reg, s.no = nc, reg, nc+4*reg
        s.box=nn.ModuleList(nn.Conv2d(c,4*reg,1) for c in ch); s.cls=nn.ModuleList(nn.Conv2d(c,nc,1) for c in ch); s.stride=(8,16,32)
    def forward(s,x):
        shape=x[0].shape
        f=[torch.cat((b(t),c(t)),1) for t,b,c in zip(x,s.box,s.cls)]
        pts,st=[],[]
        for t,stride in zip(f,s.stride):
            h,w=t.shape[2],t.shape[3]
            sx=torch.arange(w,dtype=torch.float32)+.5; sy=torch.arange(h,dtype=torch.float32)+.5
            sy,sx=torch.meshgrid(sy,sx,indexing='ij')
            pts.append(torch.stack((sx,sy),-1).view(-1,2)); st.append(torch.full((h*w,1),stride,dtype=torch.float32))
        anchors=torch.cat(pts).transpose(0,1); strides=torch.cat(st).transpose(0,1)
        cat=torch.cat([t.view(shape[0],s.no,-1) for t in f],2)
        box,cls=cat.split((4*s.reg,s.nc),1)
        b,c,a=box.shape
        proj=torch.arange(s.reg,dtype=torch.float32).view(1,s.reg,1,1)
        d=(box.view(b,4,s.reg,a).transpose(2,1).softmax(1)*proj).sum(1)
        lt,rb=d.chunk(2,1); x1=anchors.unsqueeze(0)-lt; x2=anchors.unsqueeze(0)+rb
        return torch.cat((torch.cat(((x1+x2)/2,x2-x1),1)*strides,cls.sigmoid()),1)
class Net(nn.Module):
    def __init__(s):
        super().__init__()
        s.a=nn.Sequential(nn.Conv2d(3,8,3,2,1),nn.SiLU(),nn.Conv2d(8,8,3,4,1),nn.SiLU()); s.b=nn.Conv2d(8,8,3,2,1); s.c=nn.Conv2d(8,8,3,2,1); s.up=nn.Upsample(scale_factor=2); s.m=nn.MaxPool2d(5,1,2); s.d=nn.Conv2d(16,8,1); s.head=Detect()
    def forward(s,x):
        a=s.a(x); b=s.b(a); c=s.m(s.c(b)); b=s.d(torch.cat((s.up(c),b),1)); return s.head((a,b,c))
m=Net().eval(); x=torch.zeros(1,3,64,96)
for op in (11, 17):
    p = f'{sys.argv[1]}/dynamic_opset{op}.onnx'
    torch.onnx.export(m,x,p,opset_version=op,input_names=['images'],output_names=['output0'],dynamic_axes={'images':{0:'batch',2:'height',3:'width'},'output0':{0:'batch',2:'anchors'}},dynamo=False)
    g=onnx.load(p)
    for k,v in dict(task='detect',names="{0: 'a', 1: 'b', 2: 'c'}",stride='32',imgsz='[64, 96]',batch='1',channels='3',end2end='False').items(): g.metadata_props.add(key=k,value=v)
    onnx.save(g,p)
